"""A photo lab: rolls of film come in, their photos are developed, and the owner of a roll hears when it is ready."""
