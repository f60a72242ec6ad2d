"""Signals of a process that lives: whichever line one of them interrupts, the process comes to its end in order."""

import subprocess
import sys
import textwrap

SCRIPT = textwrap.dedent("""
    import os, signal, sys, threading
    from types import SimpleNamespace
    from waybill.cli import life
    from waybill.cli.processes import STOP

    class Works:
        def __init__(self):
            self.stopped = threading.Event()

        def run(self):
            os.kill(os.getpid(), signal.SIGTERM)
            assert self.stopped.wait(60)

        def stop(self):
            self.stopped.set()

    def lives(at):
        '''Told by SIGTERM, and once more by the process that started it when so many lines have passed since; whether they were so many.'''
        passed = 0

        def trace(frame, event, argument):
            nonlocal passed
            if event == "line" and waits:
                passed += 1
                if passed == at:
                    signal.raise_signal(STOP)
            return trace

        waits = []
        desk = SimpleNamespace(
            config=SimpleNamespace(work=SimpleNamespace(host="h")), depot=SimpleNamespace(close=lambda: None), note=waits.append
        )
        sys.settrace(trace)
        try:
            code = life.until_stopped(desk, worker=Works())
        finally:
            sys.settrace(None)
        assert code == 0, code
        return passed >= at

    def hangs(number, frame):
        raise AssertionError("it hangs")

    signal.signal(signal.SIGALRM, hangs)
    at = 1
    while True:
        signal.alarm(30)
        if not lives(at):
            break
        at += 1
    print(at)
""")


def test_a_second_signal_may_come_at_any_line() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20, "lines were interrupted"
