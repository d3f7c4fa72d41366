"""The suite catches each lean transport that lacks a guard."""

import pytest

import broken_lean as broken
import endpoints
from endpoints import TransportFactory
from tocsin.executor.transport.port import NotStartedError
from transport_suite import CHECKS

CAUGHT_BY: list[tuple[TransportFactory, str]] = [
    (broken.Resends, "b59_nothing_is_sent_again_on_a_reused_connection"),
    (broken.CallsEveryEndStale, "a_reused_connection_that_ends_unheard_is_told"),
    (broken.IgnoresFresh, "a_fresh_request_gets_a_connection_of_its_own"),
    (broken.HasNoDeadline, "the_deadline_covers_the_name"),
    (broken.HasNoDeadline, "b61_a_stalled_handshake_ends_at_the_deadline"),
    (broken.ForgetsItsSockets, "b60_a_cancelled_call_leaves_no_socket"),
    (broken.ForgetsItsSockets, "b57_a_server_that_never_reads_costs_no_socket"),
    (broken.NeverChecks, "a_closed_gate_sends_no_byte_on_a_reused_connection"),
    (broken.WritesAStepLate, "the_first_byte_leaves_in_the_step_of_the_check"),
    (broken.TrustsThePool, "b59_a_connection_closed_while_idle_is_not_used"),
    (broken.TakesAnAnswerToNobody, "b59_an_answer_to_nobody_is_not_taken"),
    (broken.ClosesPolitely, "an_early_answer_to_a_large_body_leaves_no_socket"),
    (broken.SharesConnections, "connections_are_reused_one_host_at_a_time"),
    (broken.KeepsToOldConnections, "b51_each_attempt_is_checked_again"),
    (broken.ConnectsToTheName, "b51_the_connection_goes_to_the_address_that_was_checked"),
    (broken.CallsTlsAConnection, "b61_bad_certificates_are_refused_and_named"),
    (broken.CallsTlsAConnection, "b61_plain_http_on_the_tls_port_is_a_tls_error"),
    (broken.TriesOneAddress, "the_next_address_is_tried_when_one_refuses"),
    (broken.ForgetsTheCap, "bodies_are_kept_up_to_the_cap"),
    (broken.ForgetsTheMethod, "answers_without_a_body_end_at_their_head"),
    (broken.TakesInterimAnswers, "answers_without_a_body_end_at_their_head"),
    (broken.TakesWhatCame, "b59_cut_answers_are_lost_connections"),
    (broken.WaitsForMore, "b59_a_body_with_broken_framing_ends_the_call"),
    (broken.WaitsForMore, "what_is_no_http_is_a_protocol_error"),
]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize(("make", "check"), CAUGHT_BY)
async def test_broken_lean_transport_is_caught(
    make: TransportFactory, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "PATIENCE", 1.0)
    with pytest.raises((AssertionError, NotStartedError)):
        await CHECKS[check](make)
