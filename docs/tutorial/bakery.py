"""A bakery: every loaf is kneaded and baked, whatever happens to the baker."""

import time

from waybill import Application, Document, DocumentStruct, Done, Machine, Record, Runtime, StepContext, end, work


class OvenTime(DocumentStruct, frozen=True):
    minutes: int


LOAF = Machine(
    name="loaf", plural="loaves", prefix="loaf", description="One loaf of bread.", steps=__name__,
    states=(
        work("Kneading", to="Baking", description="Mixes flour and water."),
        work("Baking", to="Baked", description="Ten minutes in the oven."),
        end("Baked", description="Ready to eat."),
    ),
    documents=(Document("oven", OvenTime, "step", "How long it has been in the oven."),),
)  # fmt: skip


def kneading(loaf: Record, ctx: StepContext) -> Done:
    return Done(documents=(OvenTime(0),))


def baking(loaf: Record, ctx: StepContext) -> Done:
    for minute in range(loaf.document(OvenTime).minutes + 1, 11):
        ctx.check()
        time.sleep(0.5)
        ctx.save((OvenTime(minute),))
        ctx.report_progress(minute, 10, "minutes")
    return Done(message="golden brown")


BAKERY = Application("bakery", "Bakes bread.", machines=(LOAF,))

if __name__ == "__main__":
    with Runtime("bread", applications=[BAKERY]) as waybill:
        loaf = waybill.submit("loaf")
        waybill.run_until_idle()
        print(waybill.get("loaf", loaf.id).state)
