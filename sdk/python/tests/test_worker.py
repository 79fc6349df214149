import json
import os
import select
import signal
import threading
import time
import unittest

from progressor import (
    AttemptTimeout, Client, Failure, JobCancelled, LeaseLost, Processor, ProgressorError, Rejection, Release, Worker,
    WorkerStopped,
)
from world import Case, client, ended, enqueue, eventually, forward, job, namespace


class WorkerTest(Case):
    def test_args_results_failures_and_rejections(self):
        ns = namespace({"pull": {}})
        worker, attempts = self.worker(ns)

        @worker.job("count")
        def count(args, job):
            if not isinstance(args, dict):
                raise Failure("bad_args", "text must be a string", non_retryable=True)
            return {"words": len(args["text"].split())}

        @worker.job("no")
        def no(args, job):
            raise Rejection("no", "never")

        worker.job("nothing")(lambda args, job: None)
        worker.job("bug")(lambda args, job: args["missing"])
        worker.job("set")(lambda args, job: {1, 2})
        self.work(worker)
        got = []
        for name, args in (("count", {"text": "three little words"}), ("count", 3), ("nothing", 1), ("bug", {}), ("no", 1), ("set", 1)):
            found = ended(ns, enqueue(ns, name, args))
            got.append(found.get("result") or (found["failures"][0]["reason"] if "failures" in found else found["state"]))
        self.assertEqual(got, [{"words": 3}, "bad_args", "JOB_STATE_SUCCEEDED", "error", "no", "bad_response"])
        eventually(lambda: len(attempts) == 6)
        self.assertEqual([a.outcome for a in attempts], ["done", "failed", "done", "failed", "done", "failed"])

    def test_a_retry_gets_the_progress_and_the_failures_before_it(self):
        ns = namespace({"pull": {}})
        worker, _ = self.worker(ns)

        @worker.job("pages")
        def pages(args, job):
            if job.attempt == 2:
                return {"from": job.last_progress, "failed": [failure["message"] for failure in job.failures]}
            job.progress(150, "page 7\0", {"page": 7})
            raise Failure("busy", "not now", retry_after=0)

        self.work(worker)
        found = ended(ns, enqueue(ns, "pages", max_retry=1, backoff={"initial": "0.001s"}))
        progress = {"percent": 100, "summary": "page 7\ufffd", "details": {"page": 7}}
        self.assertEqual(found["result"], {"from": progress, "failed": ["not now"]})

    def test_heartbeats_extend_the_lease_and_carry_the_progress(self):
        ns = namespace({"pull": {}})
        worker, _ = self.worker(ns)

        @worker.job("long")
        def long(args, running):
            running.progress(50, "half")
            first = running._expires

            def extended():
                stored = job(ns, running.id).get("progress", {}).get("summary")
                return running._expires > first + 1 and time.monotonic() > first and stored == "half"

            eventually(extended)
            running.check()
            return running.attempt

        self.work(worker)
        found = ended(ns, enqueue(ns, "long", lease_duration="1s", heartbeat_interval="0.05s", timeout="60s"))
        self.assertEqual(found["result"], 1)  # no other worker took it

    def test_a_cancelled_job_stops(self):
        ns = namespace({"pull": {}})
        worker, attempts = self.worker(ns)
        worker.job("long")(lambda args, job: job.sleep(60))
        self.work(worker)
        job_id = enqueue(ns, "long", heartbeat_interval="0.05s", timeout="60s")
        eventually(lambda: job(ns, job_id)["state"] == "JOB_STATE_RUNNING")
        client.job.cancel_job({"namespace": ns, "job_id": job_id, "reason": "enough"})
        self.assertEqual(ended(ns, job_id)["state"], "JOB_STATE_CANCELLED")
        eventually(lambda: attempts)
        self.assertEqual((attempts[0].outcome, str(attempts[0].error)), ("cancelled", "enough"))
        self.assertIsInstance(attempts[0].error, JobCancelled)

    def test_a_lost_lease_and_a_timeout_stop_the_handler(self):
        ns = namespace({"pull": {}})
        worker, attempts = self.worker(ns)
        worker.job("long")(lambda args, job: job.sleep(60))
        self.work(worker)
        lost = enqueue(ns, "long", heartbeat_interval="0.05s", timeout="60s", cancel_grace="0s")
        eventually(lambda: job(ns, lost)["state"] == "JOB_STATE_RUNNING")
        client.job.cancel_job({"namespace": ns, "job_id": lost})  # without a grace period, the engine ends the job
        eventually(lambda: attempts)
        self.assertEqual(attempts[0].outcome, "lost")
        self.assertIsInstance(attempts[0].error, (LeaseLost, JobCancelled))
        late = ended(ns, enqueue(ns, "long", timeout="0.2s"))
        self.assertEqual(late["failures"][0]["reason"], "timeout")
        eventually(lambda: len(attempts) == 2)
        self.assertIsInstance(attempts[1].error, (AttemptTimeout, LeaseLost))

    def test_an_answer_whose_response_is_lost_is_sent_again_and_counts_once(self):
        ns = namespace({"pull": {}})
        url, requests = self.losing("Complete")
        runs = []
        worker, attempts = self.worker(ns, Client(url))
        worker.job("once")(lambda args, job: runs.append(job.attempt) or len(runs))
        self.work(worker)
        found = ended(ns, enqueue(ns, "once"))
        eventually(lambda: attempts)
        self.assertEqual((attempts[0].outcome, found["result"], runs, len(requests)), ("done", 1, [1], 2))

    def test_concurrency_limits_the_jobs_that_run_at_a_time(self):
        ns = namespace({"pull": {}})
        worker, _ = self.worker(ns, concurrency=2)
        lock, running, most, go = threading.Lock(), [], [], threading.Semaphore(0)

        @worker.job("slow")
        def slow(args, job):
            with lock:
                running.append(job.id)
                most.append(len(running))
            go.acquire(timeout=60)
            with lock:
                running.remove(job.id)

        self.work(worker)
        ids = [enqueue(ns, "slow", timeout="60s") for _ in range(5)]
        eventually(lambda: len(running) == 2)
        for _ in ids:
            go.release()
        for job_id in ids:
            ended(ns, job_id)
        self.assertEqual(max(most), 2)

    def test_a_worker_that_stops_releases_what_takes_too_long(self):
        ns = namespace({"pull": {}})
        worker, attempts = self.worker(ns, stop_grace=0.5)
        finish, killed = threading.Event(), threading.Event()
        worker.job("short")(lambda args, job: finish.wait(60) and "done")
        worker.job("long")(lambda args, job: job.sleep(60))

        @worker.job("later")
        def later(args, job):
            raise Release(60)

        ids = [enqueue(ns, name, timeout="60s") for name in ("short", "long", "later")]

        def terminate():
            eventually(lambda: attempts and job(ns, ids[1])["state"] == job(ns, ids[0])["state"] == "JOB_STATE_RUNNING")
            os.kill(os.getpid(), signal.SIGTERM)
            eventually(worker._stopping.is_set)
            finish.set()
            killed.set()

        threading.Thread(target=terminate, daemon=True).start()
        worker.run()  # in the main thread, which receives signals
        self.assertTrue(killed.is_set())
        self.assertEqual(ended(ns, ids[0])["result"], "done")
        for job_id, state in ((ids[1], "JOB_STATE_AVAILABLE"), (ids[2], "JOB_STATE_SCHEDULED")):
            found = job(ns, job_id)
            self.assertEqual((found["state"], found.get("failures")), (state, None))
        self.assertEqual(sorted(a.outcome for a in attempts), ["done", "released", "released"])
        self.assertTrue(any(isinstance(a.error, WorkerStopped) for a in attempts))

    def test_a_handler_that_does_not_stop_loses_its_task(self):
        ns = namespace({"pull": {}})
        worker, _ = self.worker(ns)
        finish = threading.Event()
        self.addCleanup(finish.set)
        worker.job("deaf")(lambda args, job: finish.wait(60))
        thread = self.work(worker)
        job_id = enqueue(ns, "deaf", timeout="60s")
        eventually(lambda: job(ns, job_id)["state"] == "JOB_STATE_RUNNING")
        worker.stop()
        thread.join(30)
        self.assertEqual(job(ns, job_id)["state"], "JOB_STATE_AVAILABLE")

    def test_a_stop_releases_what_the_last_poll_returns(self):
        ns = namespace({"pull": {}})
        ending = threading.Event()

        def respond(handler, body):
            status, text = forward(handler, body)
            if handler.path.endswith("/Release"):
                ending.set()
            elif json.loads(text).get("leases"):
                worker.stop()  # while the response is on its way
                eventually(lambda: ending.is_set() or select.select([handler.connection], [], [], 0)[0])
            return status, text

        worker, attempts = self.worker(ns, Client(self.answer(respond)))
        worker.job("late")(lambda args, job: None)
        thread = self.work(worker)
        job_id = enqueue(ns, "late")
        thread.join(30)
        self.assertEqual((job(ns, job_id)["state"], attempts), ("JOB_STATE_AVAILABLE", []))

    def test_an_operator_stops_a_worker(self):
        ns = namespace({"pull": {}})
        worker, _ = self.worker(ns)
        worker.job("none")(lambda args, job: None)
        thread = self.work(worker)

        def stopped():
            try:
                return client.worker.stop_worker({"namespace": ns, "worker_id": worker.id})
            except ProgressorError:
                return None

        eventually(stopped)
        thread.join(30)
        self.assertFalse(thread.is_alive())

    def test_a_worker_handles_tasks_of_processes(self):
        ns = namespace({"pull": {}})
        processor = Processor()
        processor.init(lambda task: {"aux_state": task["args"], "response": task["args"]})
        processor.call(lambda task: {"response": task["process"]["aux_state"], "complete": {}})
        worker, _ = self.worker(ns)
        worker.processes(processor)
        self.work(worker)
        key = {"namespace": ns, "process_id": "ada"}
        self.assertEqual(client.process.start({**key, "args": [1]})["response"], [1])
        self.assertEqual(client.process.call(key)["response"], [1])
        self.assertEqual(client.process.get_process(key)["process"]["status"], "PROCESS_STATUS_COMPLETED")

    def test_a_wrong_configuration_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "no handler"):
            Worker(client, ["nowhere"]).run()
        worker = Worker(client, ["nowhere"])
        worker.job("a")(lambda args, job: None)
        with self.assertRaises(ProgressorError) as caught:
            worker.run()
        self.assertEqual(caught.exception.reason, "REASON_NAMESPACE_NOT_FOUND")


if __name__ == "__main__":
    unittest.main()
