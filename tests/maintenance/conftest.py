from tests.worker.conftest import opener as opener
from tests.worker.conftest import system as system
