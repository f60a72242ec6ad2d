"""Developing: both effects may be repeated, because they are made under the photo's own name."""

from msgspec.structs import replace

from photolab.catalogue import PHOTOS
from photolab.machine import Picture
from waybill import Done, Outcome, Record, StepContext


def run_step(photo: Record, ctx: StepContext) -> Outcome:
    picture, name = photo.document(Picture), f"photolab/{photo.id}.txt"
    ctx.objects.put(name, picture.caption.upper().encode())
    with ctx.resources.open_catalogue() as tables:
        PHOTOS.enter(tables, photo)
    return Done(documents=(replace(picture, object=name),))
