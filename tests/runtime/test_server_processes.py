"""Signals and faults of a process that lives: whatever happens, and at whichever line, it comes to its end, and in
order if it can.
"""

import subprocess
import sys
import textwrap

PRELUDE = textwrap.dedent("""
    import logging, os, signal, sys, threading, time
    from types import SimpleNamespace
    from waybill.runtime import server_processes
    from waybill.runtime.signals import StopSignals
    from waybill.runtime.worker_processes import STOP_SIGNAL

    class Works:
        def __init__(self, begin=lambda: os.kill(os.getpid(), signal.SIGTERM)):
            self.stopped = threading.Event()
            self.begin = begin

        def run(self):
            self.begin()
            assert self.stopped.wait(60)

        def stop(self):
            self.stopped.set()

    def run_until_stopped(worker, on_start=lambda: None, close=lambda: None):
        environment = SimpleNamespace(close=close)
        return server_processes.run_until_stopped(environment, StopSignals(), worker=worker, on_start=on_start)

    def hangs(number, frame):
        raise AssertionError("it hangs")

    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(60)
""")


def run(script: str) -> "subprocess.CompletedProcess[str]":
    whole = PRELUDE + textwrap.dedent(script)
    return subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, timeout=200, check=False)


def test_a_second_signal_may_come_at_any_line() -> None:
    done = run("""
        def lives(at):
            '''Told by SIGTERM, and once more by the process that started it so many lines later; whether there were so many.'''
            passed = 0
            waits = []

            def trace(frame, event, argument):
                nonlocal passed
                if event == "line" and waits:
                    passed += 1
                    if passed == at:
                        signal.raise_signal(STOP_SIGNAL)
                return trace

            sys.settrace(trace)
            try:
                was_asked = run_until_stopped(Works(), on_start=lambda: waits.append(True))
            finally:
                sys.settrace(None)
            assert was_asked
            return passed >= at

        at = 1
        while lives(at):
            signal.alarm(60)
            at += 1
        print(at)
    """)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20, "lines were interrupted"


def test_a_signal_that_another_thread_gets_ends_it_too() -> None:
    done = run("""
        main = threading.main_thread().native_id

        def begin():
            for _ in range(50):  # until the main thread waits, as far as one can see
                while open(f"/proc/self/task/{main}/stat").read().rpartition(")")[2].split()[0] != "S":
                    pass
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

        print(run_until_stopped(Works(begin)))
    """)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_fault_of_the_main_thread_stops_the_parts() -> None:
    """As when nobody reads the URL that it prints: else the parts would run on, and nobody could stop them."""
    done = run("""
        def on_start():
            raise BrokenPipeError

        works = Works(lambda: None)
        try:
            run_until_stopped(works, on_start)
        except BrokenPipeError:
            print(works.stopped.is_set(), [thread.name for thread in threading.enumerate() if not thread.daemon])
    """)
    assert done.stdout == "True ['MainThread']\n", done.stderr


def test_a_request_that_does_not_end_does_not_keep_the_process() -> None:
    done = run("""
        server_processes.STOP_TIMEOUT = 2.0

        def begin():
            threading.Thread(target=threading.Event().wait).start()  # as the thread of a request that was given up
            os.kill(os.getpid(), signal.SIGTERM)

        run_until_stopped(Works(begin), close=lambda: print("closed"))
    """)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "a request or a step has not ended" in done.stderr


def test_a_log_that_nobody_reads_does_not_keep_it_from_stopping() -> None:
    done = run("""
        server_processes.STOP_TIMEOUT = 2.0
        reader, writer = os.pipe()
        server_processes.log.addHandler(logging.StreamHandler(os.fdopen(writer, "w", buffering=1)))
        server_processes.log.setLevel("INFO")
        server_processes.log.propagate = False

        def begin():
            threading.Thread(target=lambda: server_processes.log.info("x" * 1_000_000), daemon=True).start()  # more than the pipe takes
            os.read(reader, 1)
            os.kill(os.getpid(), signal.SIGTERM)

        works = Works(begin)
        stop = works.stop
        works.stop = lambda: (print("stopped", flush=True), stop())
        run_until_stopped(works)
    """)
    assert (done.returncode, done.stdout) == (1, "stopped\n"), done.stderr


def test_a_part_that_waits_for_an_answer_that_never_comes_does_not_keep_the_process() -> None:
    done = run("""
        server_processes.STOP_TIMEOUT = 0.5
        works = Works()
        works.stop = lambda: None
        run_until_stopped(works)
    """)
    assert done.returncode == 1
    assert "still waiting for the store or a request" in done.stderr
