"""The endpoint behind TLS, with a certificate of an authority of its own.

The product trusts that authority as an operator would have it trust one: OpenSSL reads `SSL_CERT_FILE`.
"""

import asyncio
import ssl
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import trustme

from bench.endpoint import Endpoint, serve


class TlsEndpoint(Endpoint):
    """`hosts` are the names and addresses that the certificate is good for, wildcards among them."""

    def __init__(self, folder: Path, hosts: Sequence[str], processes: int = 1) -> None:
        super().__init__(folder, processes)
        authority = trustme.CA()
        self._authority = folder / "authority.pem"
        self._certificate = folder / "endpoint.pem"
        authority.cert_pem.write_to_path(str(self._authority))
        authority.issue_cert(*hosts).private_key_and_cert_chain_pem.write_to_path(str(self._certificate))

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/"

    @property
    def settings(self) -> Mapping[str, str]:
        return {"SSL_CERT_FILE": str(self._authority)}

    def _command(self) -> tuple[str, ...]:
        return "bench.tls_endpoint", str(self.port), str(self._certificate)


def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["http/1.1"])
    return context


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), server_context(Path(sys.argv[2]))))
