-- What another storage service keeps is known by its URL. It is not ours to audit, and was taken for missing.

delete from inventory_content where replace(place, '://', '') <> place;
