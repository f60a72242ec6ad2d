"""The steps of ingest, one module for each work state: steps/<machine>/<state>.py, with its function `run_step`.

No step imports another one; what several of them need is a module beside this package. Small and large assemblies have
the same steps.
"""
