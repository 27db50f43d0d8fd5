"""How worker processes start: a chain of forks, a template, or one by one."""
