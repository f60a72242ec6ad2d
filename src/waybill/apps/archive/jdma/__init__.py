"""The HTTP API of JDMA, so that its official client works with this server: /jdma_control/api/v1/.

    numbers.py   the numbers of its stages and kinds
    calls.py     what each call answers
    listing.py   files and archives, streamed
    app.py       paths, networks, and the shape of errors

The API has no authentication: it believes the name that a client says. So it is there only for the networks that the
settings name. Errors are a JSON object with `error` and the input; the text is not in the reason phrase.
"""
