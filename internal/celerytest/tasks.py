import os
import time

import celery

app = celery.Celery("tasks", broker=os.environ["CELERY_BROKER_URL"])
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True, task_queue_max_priority=9)


@app.task(name="block")
def block(path, note=""):
    """Runs until the file is there."""
    while not os.path.exists(path):
        time.sleep(0.02)
