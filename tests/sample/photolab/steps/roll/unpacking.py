"""Unpacking: one child for each photo, in the commit that ends the step."""

from photolab.machine import Film, Picture
from waybill import Done, Fail, New, Outcome, Record, StepContext


def run_step(roll: Record, ctx: StepContext) -> Outcome:
    film, most = roll.document(Film), ctx.resources.settings.max_photos
    if len(film.captions) > most:
        raise Fail(f"The roll has {len(film.captions)} photos; more than {most} cannot be developed. Cut it.")
    return Done(spawn=tuple(New("photo", (Picture(caption),)) for caption in film.captions))
