"""Time: cron texts, zones with one release of zone data, and the slots of a task's schedule."""
