"""The glossary has every term of the vocabulary, and every term of the glossary is in use."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text("utf-8")
ENTRIES = re.findall(r"^- \*\*(.+?)\*\*: (.+)$", GLOSSARY, re.MULTILINE)
TERMS = [term.strip("`") for term, _ in ENTRIES]
SOURCE = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "src").rglob("*.py")))

# what the vocabulary introduced, and the words that stay
VOCABULARY = """
    Environment Runtime resources IngestResources CommandContext StepBackend
    lock LockFamily LockUnavailable operator-lock ZookeeperLocks
    hold hold_names blocks_on_hold on_hold pause blocked_by
    wake wake_count release_due_waits run_on_store ThreadSignal triggered_maintenance ChangeSignal ChangeWatcher watch
    MaintenanceRoutine maintenance mail webhook_delivery cause event action_request idempotency_key
    StepRun StepRuns StoreCommands StepThreads worker_group polling claim_sizing WorkerSettings SingleStepWorker
    unclaim enter_state document recompute_open reload_declared rebuild_files needs_recompute
    page chunk repair Finding InjectedFaults transient_error permanent_error Fail unavailable
    disk_space SpaceReservations CatalogueTables managed_documents StoreSnapshot ParkedNotes
    CommitReads RecordSnapshot EngineNode children
    resume_count error_count max_tries claim_version queue_position
    or_to on_fail on_host_lost poll_interval children_document initial_states StateType machines_for description
    HistoryEntry count_by_state CommitGroup ManifestEntry QueueEntry ActionRefused SmtpRefused ReasonBody
    HttpFetcher AddressPolicy simulated_clients invariant_checker FaultInjecting SimulatedWorkerBase ClaimedByWorker
    signals server_processes
    assembly deposit batch job migration shoulder
    record machine state step action claim session history manifest objects store settled
    work rest join end retired
""".split()  # noqa: SIM905 - a list of a hundred strings is harder to read


def pattern(term: str) -> re.Pattern[str]:
    """A term of several words is found however they are joined: disk space, disk_space, DiskSpace."""
    words = re.split(r"[ _-]", term)
    joined = r"[\s_-]?".join(map(re.escape, words))
    return re.compile(joined, 0 if len(words) == 1 and term != term.lower() else re.IGNORECASE)


def test_the_glossary_is_alphabetical_and_names_each_term_once() -> None:
    order = [re.sub(r"[ _-]", "", term).lower() for term in TERMS]
    assert order == sorted(set(order))


@pytest.mark.parametrize(("term", "sentence"), ENTRIES, ids=TERMS)
def test_each_term_has_one_sentence_and_is_in_use(term: str, sentence: str) -> None:
    assert re.fullmatch(r"[A-Z`].*[^.]\.", sentence)
    assert pattern(term.strip("`")).search(SOURCE), f"nothing in src is called {term}"


@pytest.mark.parametrize("term", VOCABULARY)
def test_each_term_of_the_vocabulary_is_in_the_glossary(term: str) -> None:
    assert term.replace("_", " ") in {each.replace("_", " ") for each in TERMS}
