"""The stages of a request, in the order of waybill.apps.archive.machine.request."""
