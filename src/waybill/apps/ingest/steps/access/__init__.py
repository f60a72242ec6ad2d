"""The steps of assemblies, small and large alike, one module for each work state."""
