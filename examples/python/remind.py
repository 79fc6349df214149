"""A worker that runs the jobs named remind."""

from progressor import Client, Worker

worker = Worker(Client(), ["mails-python"], concurrency=5)


@worker.job("remind")
def remind(args, job):
    job.progress(50, "half of the letter")
    return {"text": f"Dear {args['to']}, your cart waits."}


worker.run()  # until SIGTERM or Ctrl-C
