"""A bakery: every loaf is kneaded and baked, whatever happens to the baker."""

import time

from waybill import Application, Document, DocumentStruct, Done, Machine, Outcome, Record, StepContext
from waybill.machine import RESUME, action, end, rest, work


class OvenTime(DocumentStruct, frozen=True):
    minutes: int


LOAF = Machine(
    name="loaf", plural="loaves", prefix="loaf", description="One loaf of bread.",
    states=(
        work("Kneading", "Baking", "Mixes flour and water."),
        work("Baking", "Baked", "Ten minutes in the oven."),
        rest("Failed", "A step gave up; the message says why.", settled=True),
        end("Baked", "Ready to eat."),
    ),
    actions=(action("resume", "Failed", RESUME, "Go on after the last step that was done."),),
    documents=(Document("oven", OvenTime, "step", "How long it has been in the oven."),),
)  # fmt: skip


@LOAF.step("Kneading")
def knead(loaf: Record, ctx: StepContext) -> Outcome:
    return Done(documents=(OvenTime(0),))


@LOAF.step("Baking")
def bake(loaf: Record, ctx: StepContext) -> Outcome:
    for minute in range(loaf.document(OvenTime).minutes + 1, 11):
        ctx.check()
        time.sleep(0.5)
        ctx.save((OvenTime(minute),))
        ctx.report_progress(minute, 10, "minutes")
    return Done(message="golden brown")


BAKERY = Application("bakery", "Bakes bread.", machines=(LOAF,))
