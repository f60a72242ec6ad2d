"""`python -m waybill`: the same as the command `waybill`."""

from waybill.cli import main

if __name__ == "__main__":
    main()
