"""Other systems than a step of a transformer under a plan: servers, volunteers, partitions, rematerialisation."""
