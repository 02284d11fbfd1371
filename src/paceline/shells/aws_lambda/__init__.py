"""The serverless form. A function parses what AWS hands it, calls the steps, and says what came of it.

runtime            what every function has at hand, once for each process
api                REST, behind API Gateway
items_stream       a definition changed: entries follow
schedulers_stream  an entry moved: its alarm is set
ticks              an alarm rang: the entry advances, or a provider's next run is released
sweeper            every minute: what lost its alarm, and what comes into its last 15 minutes
planner            a batch's day, page by page, under Step Functions
sender             runs are carried out and settled
jobs               measurements are sent, followed and finished; webhooks are called
keeper             retention
"""
