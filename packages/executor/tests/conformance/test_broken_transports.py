"""The suite catches each broken transport: a check that no break can fail would prove nothing."""

import re

import pytest

import broken_transports as broken
import endpoints
from endpoints import TransportFactory
from tocsin.executor.transport.port import NotStartedError
from transport_suite import CHECKS

CAUGHT_BY: list[tuple[TransportFactory, str]] = [
    (broken.FollowsRedirects, "b52_redirects_are_not_followed"),
    (broken.Resends, "b59_nothing_is_sent_again_on_a_reused_connection"),
    (broken.WaitsForTheParser, "b59_a_body_with_broken_framing_ends_the_call"),
    (broken.WaitsForTheParser, "closing_ends_a_call_in_its_answer"),
    (broken.HasNoDeadline, "b57_slow_answers_end_at_the_deadline"),
    (broken.HasNoDeadline, "the_deadline_covers_the_name"),
    (broken.HasNoDeadline, "b61_a_stalled_handshake_ends_at_the_deadline"),
    (broken.ForgetsTheCap, "b57_endless_answers_end_at_their_limit"),
    (broken.ForgetsTheCap, "bodies_are_kept_up_to_the_cap"),
    (broken.Decompresses, "b56_compressed_bodies_are_kept_as_they_come"),
    (broken.TakesInterimAnswers, "answers_without_a_body_end_at_their_head"),
    (broken.ForgetsTheMethod, "answers_without_a_body_end_at_their_head"),
    (broken.KeepsCookies, "no_cookie_comes_back"),
    (broken.UsesTheEnvironment, "no_proxy_of_the_environment_is_used"),
    (broken.NeverChecks, "a_closed_gate_sends_no_byte"),
    (broken.NeverChecks, "a_closed_gate_sends_no_byte_on_a_reused_connection"),
    (broken.ChecksFirst, "the_gate_is_checked_after_name_and_connection"),
    (broken.WritesAStepLate, "the_first_byte_leaves_in_the_step_of_the_check"),
    (broken.TrustsThePool, "b59_an_answer_to_nobody_is_not_taken"),
    (broken.TrustsThePool, "b59_a_connection_closed_while_idle_is_not_used"),
    (broken.ClosesPolitely, "b57_a_server_that_never_reads_costs_no_socket"),
    (broken.AllowsEverything, "b51_internal_addresses_are_refused"),
    (broken.ResolvesTwice, "b51_the_connection_goes_to_the_address_that_was_checked"),
    (broken.KeepsToOldConnections, "b51_each_attempt_is_checked_again"),
    (broken.BelievesEveryCertificate, "b61_bad_certificates_are_refused_and_named"),
    (broken.ClosesPolitely, "an_early_answer_to_a_large_body_leaves_no_socket"),
    (broken.SharesConnections, "connections_are_reused_one_host_at_a_time"),
    (broken.SharesConnections, "b61_a_good_certificate_is_taken_and_the_name_is_kept"),
    (broken.TriesOneAddress, "the_next_address_is_tried_when_one_refuses"),
    (broken.WritesByTheLibrary, "nothing_is_added_to_the_request"),
    (broken.WritesByTheLibrary, "b54_the_request_line_is_the_stored_url"),
    (broken.AsksWithoutTheDot, "b54_odd_host_names_are_asked_and_named_as_stored"),
    (broken.TakesWhatCame, "b59_cut_answers_are_lost_connections"),
    (broken.TakesAnyEnd, "a_reset_cuts_off_what_only_the_end_of_its_connection_ends"),
    (broken.TakesAnyEnd, "closing_ends_a_call_in_its_answer"),
    (broken.WantsAFarewell, "a_reset_after_an_answer_spoils_nothing"),
    (broken.HearsNothing, "a_reused_connection_that_ends_unheard_is_told"),
    (broken.PassesOverAllInterimAnswers, "interim_answers_are_bounded"),
    (broken.CountsInterimAnswersShort, "interim_answers_are_bounded"),
    (broken.LosesSlots, "b60_timeouts_and_cancellations_free_their_slots"),
    (broken.LeavesCancelledCalls, "b60_a_cancelled_call_leaves_no_socket"),
    (broken.TakesOldTls, "b61_tls_1_0_is_refused"),
    (broken.CallsTlsAConnection, "b61_plain_http_on_the_tls_port_is_a_tls_error"),
    (broken.WantsAFarewell, "b61_an_end_without_farewell_spoils_no_whole_answer"),
    (broken.ForgetsSockets, "b61_many_failures_leave_no_socket"),
]


def test_each_check_of_a_case_is_failed_by_some_transport() -> None:
    assert {check for check in CHECKS if re.match(r"b\d+_", check)} <= {check for _, check in CAUGHT_BY}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize(("make", "check"), CAUGHT_BY)
async def test_broken_transport_is_caught(make: TransportFactory, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "PATIENCE", 1.0)
    with pytest.raises((AssertionError, NotStartedError)):
        await CHECKS[check](make)
