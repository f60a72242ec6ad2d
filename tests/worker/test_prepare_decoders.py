"""Types that many threads read for the first time at the same moment: msgspec alone would end the process with
SIGSEGV.
"""

import subprocess
import sys

PROGRAM = """
import sys, threading
import msgspec
from waybill.apps.ingest.application import APPLICATION
from waybill.record import prepare_decoders

APPLICATION.build_machines({})
sys.setswitchinterval(1e-7)
if "unready" not in sys.argv:
    prepare_decoders()


def below(parent):
    for each in parent.__subclasses__():
        yield each
        yield from below(each)


def example(type):
    config = type.__struct_config__
    if config.array_like:
        return b'["a", "a", "a", "a", "a"]'
    tag = {config.tag_field: config.tag} if config.tag_field else {}
    return msgspec.json.encode(dict.fromkeys(type.__struct_encode_fields__, "a") | tag)


cases = [(type, example(type)) for type in below(msgspec.Struct)]
together = threading.Barrier(8)


def read():
    for type, data in cases:
        together.wait()
        try:
            msgspec.json.decode(data, type=type)
        except (msgspec.ValidationError, TypeError, NameError):
            pass


threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(cases))
"""


def test_types_are_ready_before_threads_read_them() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 50
