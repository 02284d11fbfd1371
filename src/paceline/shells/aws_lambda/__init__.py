"""The serverless form. Each function parses an event of AWS, calls the steps, and logs and returns a report.

runtime            parts that every function uses, made once for each process
api                REST, behind API Gateway
items_stream       a definition changed: its entry follows
schedulers_stream  an entry moved: its alarm is sent
ticks              an alarm came: the entry advances, or a provider's next run is released
sweeper            every minute: sends alarms that were lost, and those of entries due in the next 15 minutes
planner            plans a batch's day, page by page, under Step Functions
sender             carries out and settles runs
jobs               sends, follows and finishes measurements; calls webhooks
keeper             retention
"""
