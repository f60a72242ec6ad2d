"""The machines: a roll is unpacked into photos, waits for them, and is announced."""

from waybill import Document, DocumentStruct, EventType, Machine, action, end, join, rest, work

DAY = 86400.0
ROLL_READY = EventType("photolab.roll.ready", "All photos of a roll are developed, or failed.")


class Film(DocumentStruct, frozen=True):
    captions: tuple[str, ...]  # one for each photo


class Picture(DocumentStruct, frozen=True):
    caption: str
    object: str = ""  # the name of the developed picture


ROLL = Machine(
    name="roll", plural="rolls", prefix="roll", description="A roll of film.",
    made_by="POST /api/v1/photolab/rolls",
    steps="photolab.steps.roll",
    states=(
        work("Unpacking", to="Developing", description="Makes one record for each photo."),
        join("Developing", to="Announcing", description="Its photos are being developed."),
        work("Announcing", to="Ready", description="Sends the event that it is ready."),
        rest("Ready", description="Waits for its owner.", settled=True),
        end("Collected", description="Handed over.", keep=30 * DAY),
        end("Discarded", description="Nobody came for it.", keep=DAY),
    ),
    actions=(
        action("collect", "Ready", "Collected", "Hand it over.", role="submitter"),
        action("discard", "Ready", "Discarded", "Give it up.", confirm="Its photos are lost."),
    ),
    documents=(Document("film", Film, "service", "What is on the film."),),
)  # fmt: skip

PHOTO = Machine(
    name="photo", plural="photos", prefix="photo", description="One photo of a roll.",
    parent="roll",
    made_by="the step of its roll",
    steps="photolab.steps.photo",
    states=(
        work("Developing", to="Developed", description="Makes the picture and enters it in the catalogue.", max_tries=5),
        end("Developed", description="Its picture is stored."),
    ),
    documents=(Document("picture", Picture, "step", "Its caption, and where the picture is."),),
)  # fmt: skip
