/** Any value that JSON can hold. */
export type Json = any;
export type JsonObject = {
    [key: string]: Json;
};
/** The bytes of a process: any value that JSON can hold, or bytes that are not JSON. */
export type Payload = any;
/** Seconds: "1.5s". */
export type Duration = string;
/** RFC 3339: "2026-11-20T12:00:00Z". */
export type Timestamp = string;
/** The settings of one request. */
export interface CallOptions {
    /** Ends the request. The promise is rejected with the reason of the signal. */
    signal?: AbortSignal;
    /** Milliseconds for the request, including its retries. The default is that of the client. */
    timeout?: number;
    /** The maximum number of times that the request is sent. The default is that of the client. */
    maxAttempts?: number;
}
/** A method of the engine, and whether a request may be sent again after a lost response. */
export interface Method {
    path: string;
    request: string;
    response: string;
    repeat: "once" | "key" | "always";
}
export type Send = (method: Method, request: object, options?: CallOptions) => Promise<any>;
/**
 * AccessService manages the keys of clients, their roles, and the logins of users to the console.
 * An engine that does not authenticate its clients rejects changes. A change takes effect on every
 * engine within 10 s.
 */
export declare class AccessService {
    private readonly send;
    constructor(send: Send);
    /**
     * CreateKey creates a key with which a client authenticates. Only the response contains its
     * token.
     */
    createKey(request: CreateKeyRequest, options?: CallOptions): Promise<CreateKeyResponse>;
    listKeys(request: ListKeysRequest, options?: CallOptions): Promise<ListKeysResponse>;
    /**
     * RotateKey creates a key with the name and the grants of a valid key. After an overlap in which
     * both are valid, the old key expires.
     */
    rotateKey(request: RotateKeyRequest, options?: CallOptions): Promise<RotateKeyResponse>;
    /** RevokeKey makes a key invalid. It cannot become valid again. */
    revokeKey(request: RevokeKeyRequest, options?: CallOptions): Promise<RevokeKeyResponse>;
    /** AddGrant gives a role in some namespaces to a client. */
    addGrant(request: AddGrantRequest, options?: CallOptions): Promise<AddGrantResponse>;
    listGrants(request: ListGrantsRequest, options?: CallOptions): Promise<ListGrantsResponse>;
    /** RemoveGrant takes a role away from a client. */
    removeGrant(request: RemoveGrantRequest, options?: CallOptions): Promise<RemoveGrantResponse>;
    /** ListConsoleLogins lists the logins to the console that have not expired. */
    listConsoleLogins(request: ListConsoleLoginsRequest, options?: CallOptions): Promise<ListConsoleLoginsResponse>;
    /** EndConsoleLogins ends one login, or all logins of a user. The user can log in again. */
    endConsoleLogins(request: EndConsoleLoginsRequest, options?: CallOptions): Promise<EndConsoleLoginsResponse>;
}
/**
 * ProcessService is the API for clients. A process is a durable state machine with an identity. It
 * handles one task at a time, in task_id order. The result of a task is stored in one transaction
 * before any response is sent.
 */
export declare class ProcessService {
    private readonly send;
    constructor(send: Send);
    /** Start creates a process and runs its INIT task. */
    start(request: StartRequest, options?: CallOptions): Promise<StartResponse>;
    /** Call runs a CALL task on a process and returns the processor's response. */
    call(request: CallRequest, options?: CallOptions): Promise<CallResponse>;
    /** Repair returns a process in PROCESS_STATUS_ERROR to PROCESS_STATUS_RUNNING. */
    repair(request: RepairRequest, options?: CallOptions): Promise<RepairResponse>;
    /**
     * AwaitTask waits for a task that was accepted earlier, by a request with WAIT_ACCEPTED or by one
     * that timed out.
     */
    awaitTask(request: AwaitTaskRequest, options?: CallOptions): Promise<AwaitTaskResponse>;
    getProcess(request: GetProcessRequest, options?: CallOptions): Promise<GetProcessResponse>;
    listProcesses(request: ListProcessesRequest, options?: CallOptions): Promise<ListProcessesResponse>;
    /** TraceProcess lists all tasks of a process, each with the events that it produced. */
    traceProcess(request: TraceProcessRequest, options?: CallOptions): Promise<TraceProcessResponse>;
    /** PutProcess imports a process with its history and timers. It does not call the processor. */
    putProcess(request: PutProcessRequest, options?: CallOptions): Promise<PutProcessResponse>;
    /**
     * CancelProcess asks the processor to clean up (a CANCEL task). If that takes longer than the
     * grace period, the engine cancels the process without it.
     */
    cancelProcess(request: CancelProcessRequest, options?: CallOptions): Promise<CancelProcessResponse>;
    /** SuspendProcess stops a process: no task starts until ResumeProcess. */
    suspendProcess(request: SuspendProcessRequest, options?: CallOptions): Promise<SuspendProcessResponse>;
    /** ResumeProcess returns a suspended process to its previous status. Its waiting tasks run. */
    resumeProcess(request: ResumeProcessRequest, options?: CallOptions): Promise<ResumeProcessResponse>;
    /** RestartHistory begins a new, empty history of a process. The process keeps all other data. */
    restartHistory(request: RestartHistoryRequest, options?: CallOptions): Promise<RestartHistoryResponse>;
    /** RemoveProcess deletes a process with all its tasks and events. */
    removeProcess(request: RemoveProcessRequest, options?: CallOptions): Promise<RemoveProcessResponse>;
    /**
     * EraseProcess removes a process that has ended or is suspended, or that was removed before, and
     * all data about it in other tables: results, idempotency keys, dead letters, messages, events of
     * jobs and the content of changes. In the audit, a hash replaces its ID. A request works for at
     * most 5 seconds. Send it again with next_page_token until that is empty.
     */
    eraseProcess(request: EraseProcessRequest, options?: CallOptions): Promise<EraseProcessResponse>;
}
/**
 * InsightService is the API for operators and the console. It reads counters and indexes, and never
 * counts the rows of a table.
 */
export declare class InsightService {
    private readonly send;
    constructor(send: Send);
    /**
     * ExplainProcess returns how the time of a process was spent, what it waits for, and what comes
     * next. It describes a durable function by its journal, if the client has payload.read.
     */
    explainProcess(request: ExplainProcessRequest, options?: CallOptions): Promise<ExplainProcessResponse>;
    countProcesses(request: CountProcessesRequest, options?: CallOptions): Promise<CountProcessesResponse>;
    getOverview(request: GetOverviewRequest, options?: CallOptions): Promise<GetOverviewResponse>;
    /**
     * ListErrors groups the processes in ERROR, the FAILED jobs, and the flow runs that are FAILED or
     * EXPIRED, by reason and message. It also returns the failing crons.
     */
    listErrors(request: ListErrorsRequest, options?: CallOptions): Promise<ListErrorsResponse>;
    listNodes(request: ListNodesRequest, options?: CallOptions): Promise<ListNodesResponse>;
    /** DrainNode makes a node finish its running tasks and accept no new work. */
    drainNode(request: DrainNodeRequest, options?: CallOptions): Promise<DrainNodeResponse>;
    listAudit(request: ListAuditRequest, options?: CallOptions): Promise<ListAuditResponse>;
}
/**
 * BulkService applies a verb to all processes, jobs or runs that match a filter. A bulk is a
 * durable process of kind bulk. Its process_id is "~bulk/" followed by the bulk_id, and its events
 * are the failures.
 */
export declare class BulkService {
    private readonly send;
    constructor(send: Send);
    startBulk(request: StartBulkRequest, options?: CallOptions): Promise<StartBulkResponse>;
    getBulk(request: GetBulkRequest, options?: CallOptions): Promise<GetBulkResponse>;
    listBulks(request: ListBulksRequest, options?: CallOptions): Promise<ListBulksResponse>;
    cancelBulk(request: CancelBulkRequest, options?: CallOptions): Promise<CancelBulkResponse>;
}
/**
 * NamespaceService manages namespaces, which are units of isolation with their own settings.
 * Engines store the namespaces of their configuration file when they start. Namespaces that are
 * created here are only in the database.
 */
export declare class NamespaceService {
    private readonly send;
    constructor(send: Send);
    putNamespace(request: PutNamespaceRequest, options?: CallOptions): Promise<PutNamespaceResponse>;
    getNamespace(request: GetNamespaceRequest, options?: CallOptions): Promise<GetNamespaceResponse>;
    listNamespaces(request: ListNamespacesRequest, options?: CallOptions): Promise<ListNamespacesResponse>;
    /**
     * PauseNamespace prevents tasks of a namespace from starting. Requests are still accepted, and
     * wait.
     */
    pauseNamespace(request: PauseNamespaceRequest, options?: CallOptions): Promise<PauseNamespaceResponse>;
    resumeNamespace(request: ResumeNamespaceRequest, options?: CallOptions): Promise<ResumeNamespaceResponse>;
    /**
     * GetNamespaceHealth reports whether the tasks of namespaces run, and if not, why and what to do.
     * It shows the view of the node that serves the request.
     */
    getNamespaceHealth(request: GetNamespaceHealthRequest, options?: CallOptions): Promise<GetNamespaceHealthResponse>;
    /**
     * DeleteNamespace deletes a namespace. It returns at once, and the engines delete the rows in the
     * background. Meanwhile, the namespace accepts no requests, and GetNamespace shows the data that
     * is left. A repeated request changes nothing.
     */
    deleteNamespace(request: DeleteNamespaceRequest, options?: CallOptions): Promise<DeleteNamespaceResponse>;
}
/** ChangeService streams what happens in namespaces that record changes, to clients and to sinks. */
export declare class ChangeService {
    private readonly send;
    constructor(send: Send);
    /**
     * PutSink creates a sink or replaces its settings. It keeps the cursor and the state of an
     * existing sink, and repeats a failed delivery at once.
     */
    putSink(request: PutSinkRequest, options?: CallOptions): Promise<PutSinkResponse>;
    getSink(request: GetSinkRequest, options?: CallOptions): Promise<GetSinkResponse>;
    listSinks(request: ListSinksRequest, options?: CallOptions): Promise<ListSinksResponse>;
    /** ExplainSink returns why a sink does not deliver, what comes next, and what would unblock it. */
    explainSink(request: ExplainSinkRequest, options?: CallOptions): Promise<ExplainSinkResponse>;
    /**
     * PauseSink stops deliveries within about a second. Requests in progress finish. Changes wait for
     * at most max_lag.
     */
    pauseSink(request: PauseSinkRequest, options?: CallOptions): Promise<PauseSinkResponse>;
    /** ResumeSink makes a sink ACTIVE from any state, and repeats a failed delivery at once. */
    resumeSink(request: ResumeSinkRequest, options?: CallOptions): Promise<ResumeSinkResponse>;
    /** RewindSink moves the cursor of a sink to a time. The state does not change. */
    rewindSink(request: RewindSinkRequest, options?: CallOptions): Promise<RewindSinkResponse>;
    /**
     * RetrySinkDeadLetters lets a sink deliver dead letters again, one at a time, after newer changes
     * of their processes. It returns at once. If a delivery succeeds, the dead letter is deleted. If
     * it fails, the dead letter stays, with its new error, until it is retried again.
     */
    retrySinkDeadLetters(request: RetrySinkDeadLettersRequest, options?: CallOptions): Promise<RetrySinkDeadLettersResponse>;
    /** DeleteSink deletes a sink with its dead letters. */
    deleteSink(request: DeleteSinkRequest, options?: CallOptions): Promise<DeleteSinkResponse>;
}
/**
 * WorkerService is the pull transport. A worker, in any language and possibly behind a firewall,
 * leases tasks, extends the leases and sends the results. It serves namespaces whose processor is
 * `pull`.
 */
export declare class WorkerService {
    private readonly send;
    constructor(send: Send);
    /** Poll waits for tasks and leases them. A process has at most one live lease at a time. */
    poll(request: PollRequest, options?: CallOptions): Promise<PollResponse>;
    /** Heartbeat extends leases and stores progress. The response contains a directive for each lease. */
    heartbeat(request: HeartbeatRequest, options?: CallOptions): Promise<HeartbeatResponse>;
    /**
     * Checkpoint stores events, state and metadata of a lease before its result. If the attempt is
     * lost afterwards, the next one gets the process with these events. A checkpoint that is sent
     * again is stored once. If the lease was lost, it fails with FAILED_PRECONDITION and changes
     * nothing. Only leases with may_checkpoint, and pushed tasks with a checkpoint_token, can store
     * checkpoints.
     */
    checkpoint(request: CheckpointRequest, options?: CallOptions): Promise<CheckpointResponse>;
    /**
     * Complete stores the result of a lease. If the lease was lost, it fails with FAILED_PRECONDITION
     * and changes nothing.
     */
    complete(request: CompleteRequest, options?: CallOptions): Promise<CompleteResponse>;
    /**
     * CompleteBatch stores the results of several leases in one round trip. Each has its own outcome:
     * an invalid result or a lost lease does not affect the others.
     */
    completeBatch(request: CompleteBatchRequest, options?: CallOptions): Promise<CompleteBatchResponse>;
    /**
     * Release returns leases without a result, for example when a worker shuts down. Another worker
     * can take the tasks at once, or after delay.
     */
    release(request: ReleaseRequest, options?: CallOptions): Promise<ReleaseResponse>;
    listWorkers(request: ListWorkersRequest, options?: CallOptions): Promise<ListWorkersResponse>;
    /**
     * GetWorker returns a worker and its leases in the namespace. If the worker was not seen there
     * within a day, it fails with NOT_FOUND. To see how its jobs ended, use ListJobEvents.
     */
    getWorker(request: GetWorkerRequest, options?: CallOptions): Promise<GetWorkerResponse>;
    /**
     * StopWorker asks a worker to stop. The worker receives the command with its next Poll or
     * Heartbeat.
     */
    stopWorker(request: StopWorkerRequest, options?: CallOptions): Promise<StopWorkerResponse>;
}
/**
 * FlowService runs work of several steps, described by versioned templates. A run is a process of
 * kind `flow`. Its steps are rows of the table flow_steps. A step that is a job is enqueued,
 * leased, retried and cancelled like any other job, so workers need no changes. Every status change
 * stores a job event in the same transaction.
 */
export declare class FlowService {
    private readonly send;
    constructor(send: Send);
    /**
     * PutTemplate stores the next version of a template. If the template equals the newest version,
     * no new version is stored. Versions never change. A run keeps the version that it was started
     * with.
     */
    putTemplate(request: PutTemplateRequest, options?: CallOptions): Promise<PutTemplateResponse>;
    getTemplate(request: GetTemplateRequest, options?: CallOptions): Promise<GetTemplateResponse>;
    listTemplates(request: ListTemplatesRequest, options?: CallOptions): Promise<ListTemplatesResponse>;
    enableTemplate(request: EnableTemplateRequest, options?: CallOptions): Promise<EnableTemplateResponse>;
    /**
     * DisableTemplate prevents new runs, including those of crons (their fires are FAILED). Existing
     * runs continue.
     */
    disableTemplate(request: DisableTemplateRequest, options?: CallOptions): Promise<DisableTemplateResponse>;
    /** DeleteTemplate fails while a run of the template has not ended. */
    deleteTemplate(request: DeleteTemplateRequest, options?: CallOptions): Promise<DeleteTemplateResponse>;
    /**
     * StartRun checks the payload against the schema and the scope against the concurrency policy,
     * and stores the run.
     */
    startRun(request: StartRunRequest, options?: CallOptions): Promise<StartRunResponse>;
    getRun(request: GetRunRequest, options?: CallOptions): Promise<GetRunResponse>;
    listRuns(request: ListRunsRequest, options?: CallOptions): Promise<ListRunsResponse>;
    /** ListSteps lists the steps of a run, including each item of for_each. */
    listSteps(request: ListStepsRequest, options?: CallOptions): Promise<ListStepsResponse>;
    /**
     * CancelRun cancels a run. A run that is PENDING, or QUEUED without open waits, ends at once: it
     * is CANCELLED when its completed steps are undone. Another run becomes CANCEL_REQUESTED. Workers
     * of cancelable steps receive the request with their next heartbeat. After the grace period, the
     * engine ends the cancelable steps that still run (event cancel_grace_expired). The run stays
     * CANCEL_REQUESTED until its other running steps have ended. If the run is already
     * CANCEL_REQUESTED, nothing changes. If it has ended, or if its template does not support
     * cancelling, CancelRun fails with FAILED_PRECONDITION.
     */
    cancelRun(request: CancelRunRequest, options?: CallOptions): Promise<CancelRunResponse>;
    /**
     * RetryRun continues a run that is FAILED, CANCELLED or EXPIRED at the steps that did not
     * succeed. Attempts are counted from 1 again.
     */
    retryRun(request: RetryRunRequest, options?: CallOptions): Promise<RetryRunResponse>;
    /**
     * RepeatRun starts a new run with the payload of an old one. It fails if the template is not
     * repeatable.
     */
    repeatRun(request: RepeatRunRequest, options?: CallOptions): Promise<RepeatRunResponse>;
    /**
     * RemoveRun removes a run that has ended, with its steps and its jobs. If it has not ended,
     * RemoveRun fails with FAILED_PRECONDITION: use CancelRun first.
     */
    removeRun(request: RemoveRunRequest, options?: CallOptions): Promise<RemoveRunResponse>;
    /** ListOpenWaits lists the steps that wait for a person or an external worker. */
    listOpenWaits(request: ListOpenWaitsRequest, options?: CallOptions): Promise<ListOpenWaitsResponse>;
    /**
     * CompleteStep ends a wait. After a cancel request, it accepts only `cancelled`. A repeated
     * request with the same outcome returns the run. Another outcome fails with FAILED_PRECONDITION.
     */
    completeStep(request: CompleteStepRequest, options?: CallOptions): Promise<CompleteStepResponse>;
    /**
     * ReportStep stores the progress of a wait and changes its due time. The response contains a
     * directive: continue or cancel.
     */
    reportStep(request: ReportStepRequest, options?: CallOptions): Promise<ReportStepResponse>;
    /** SkipStep ends a step with the given result. */
    skipStep(request: SkipStepRequest, options?: CallOptions): Promise<SkipStepResponse>;
}
/**
 * JobEventService returns the events of jobs, runs and steps. Each status change adds one event in
 * the same transaction. Some other changes also add an event. Events are never updated.
 */
export declare class JobEventService {
    private readonly send;
    constructor(send: Send);
    listJobEvents(request: ListJobEventsRequest, options?: CallOptions): Promise<ListJobEventsResponse>;
}
/**
 * CronService starts runs at cron times. A cron is itself a process. Its next fire time is a timer
 * task in the table schedule, and each fire is decided and stored in one transaction.
 */
export declare class CronService {
    private readonly send;
    constructor(send: Send);
    createCron(request: CreateCronRequest, options?: CallOptions): Promise<CreateCronResponse>;
    updateCron(request: UpdateCronRequest, options?: CallOptions): Promise<UpdateCronResponse>;
    getCron(request: GetCronRequest, options?: CallOptions): Promise<GetCronResponse>;
    listCrons(request: ListCronsRequest, options?: CallOptions): Promise<ListCronsResponse>;
    /** ListNextCrons lists the crons that fire next, of one namespace or of all. */
    listNextCrons(request: ListNextCronsRequest, options?: CallOptions): Promise<ListNextCronsResponse>;
    deleteCron(request: DeleteCronRequest, options?: CallOptions): Promise<DeleteCronResponse>;
    pauseCron(request: PauseCronRequest, options?: CallOptions): Promise<PauseCronResponse>;
    resumeCron(request: ResumeCronRequest, options?: CallOptions): Promise<ResumeCronResponse>;
    triggerCron(request: TriggerCronRequest, options?: CallOptions): Promise<TriggerCronResponse>;
    /**
     * CancelFire cancels the run of a fire, as CancelProcess, CancelJob or CancelRun would. If the
     * fire waits, CancelFire removes it from the queue. If it neither runs nor waits, CancelFire
     * fails with FAILED_PRECONDITION.
     */
    cancelFire(request: CancelFireRequest, options?: CallOptions): Promise<CancelFireResponse>;
    /**
     * RerunFire starts another run for a fire whose status is SKIPPED, FAILED, TIMEOUT or CANCELLED.
     * The run has the original fire time and the next attempt number. It starts at once: the policies
     * do not apply to it, and it does not count for them. Any other status fails with
     * FAILED_PRECONDITION.
     */
    rerunFire(request: RerunFireRequest, options?: CallOptions): Promise<RerunFireResponse>;
    /**
     * BackfillCron runs the past fire times from from_time to to_time that have no row yet. By
     * default they run in order, at most max_concurrency at the same time. These runs do not count
     * for the policies. With overlap_action, each fire time is decided at once, as by TriggerCron.
     */
    backfillCron(request: BackfillCronRequest, options?: CallOptions): Promise<BackfillCronResponse>;
    /** StopBackfills ends the backfills of a cron. Runs that they have started continue. */
    stopBackfills(request: StopBackfillsRequest, options?: CallOptions): Promise<StopBackfillsResponse>;
    /** PreviewCron lists fire times of a stored cron or of a spec that is not stored. */
    previewCron(request: PreviewCronRequest, options?: CallOptions): Promise<PreviewCronResponse>;
    /** ListFires lists the past fire times, each with the decision and its reason. */
    listFires(request: ListFiresRequest, options?: CallOptions): Promise<ListFiresResponse>;
}
/**
 * JobService is the job queue. Clients enqueue jobs. Workers (WorkerService) or a processor run
 * them.
 */
export declare class JobService {
    private readonly send;
    constructor(send: Send);
    enqueue(request: EnqueueRequest, options?: CallOptions): Promise<EnqueueResponse>;
    /** EnqueueBatch enqueues either all jobs or none of them. */
    enqueueBatch(request: EnqueueBatchRequest, options?: CallOptions): Promise<EnqueueBatchResponse>;
    getJob(request: GetJobRequest, options?: CallOptions): Promise<GetJobResponse>;
    listJobs(request: ListJobsRequest, options?: CallOptions): Promise<ListJobsResponse>;
    /**
     * FetchResult returns a kept result once, and deletes it. If it was deleted or has expired,
     * result is null.
     */
    fetchResult(request: FetchResultRequest, options?: CallOptions): Promise<FetchResultResponse>;
    /**
     * UpdateJob changes options of a job that has not ended. docs/jobs.md describes when a change of
     * each option takes effect.
     */
    updateJob(request: UpdateJobRequest, options?: CallOptions): Promise<UpdateJobResponse>;
    cancelJob(request: CancelJobRequest, options?: CallOptions): Promise<CancelJobResponse>;
    /**
     * RetryJob runs a FAILED or CANCELLED job again, and with clear_successes also a SUCCEEDED one,
     * with a new count of attempts. If the job is RETRYABLE, its next attempt begins now, and the
     * earlier attempts still count. If the job belongs to a step of a run and is not RETRYABLE,
     * RetryJob fails with INVALID_ARGUMENT: use RetryRun.
     */
    retryJob(request: RetryJobRequest, options?: CallOptions): Promise<RetryJobResponse>;
    /**
     * RemoveJob deletes a job that has ended, with its result and failures. Its events stay for the
     * retention of the namespace. If the job has not ended, RemoveJob fails with FAILED_PRECONDITION:
     * use CancelJob first. If the job belongs to a step of a run, RemoveJob fails with
     * INVALID_ARGUMENT: the job is removed with its run.
     */
    removeJob(request: RemoveJobRequest, options?: CallOptions): Promise<RemoveJobResponse>;
    getQueueStats(request: GetQueueStatsRequest, options?: CallOptions): Promise<GetQueueStatsResponse>;
    /**
     * PauseJobs pauses the jobs of one name: no worker and no processor gets them until ResumeJobs.
     * Running attempts continue, and jobs can still be enqueued. The node that serves the request
     * applies it at once, and the others within a second. If the name is already paused, its reason
     * changes. If the namespace has 100 other paused names, PauseJobs fails with INVALID_ARGUMENT.
     */
    pauseJobs(request: PauseJobsRequest, options?: CallOptions): Promise<PauseJobsResponse>;
    /**
     * ResumeJobs resumes the jobs of one name and wakes the workers that poll. It succeeds even if
     * the name is not paused.
     */
    resumeJobs(request: ResumeJobsRequest, options?: CallOptions): Promise<ResumeJobsResponse>;
    listPausedJobs(request: ListPausedJobsRequest, options?: CallOptions): Promise<ListPausedJobsResponse>;
    putConstraint(request: PutConstraintRequest, options?: CallOptions): Promise<PutConstraintResponse>;
    listConstraints(request: ListConstraintsRequest, options?: CallOptions): Promise<ListConstraintsResponse>;
    deleteConstraint(request: DeleteConstraintRequest, options?: CallOptions): Promise<DeleteConstraintResponse>;
}
/**
 * Permission allows something in the namespaces of a grant. docs/security.md lists the roles, which
 * are sets of permissions.
 */
export type Permission = "PERMISSION_UNSPECIFIED"
/** see processes, jobs, runs and crons, without their payloads */
 | "PERMISSION_PROCESS_READ"
/** see payloads: args, states, events and results */
 | "PERMISSION_PAYLOAD_READ"
/** start and call processes and runs, and cancel them */
 | "PERMISSION_PROCESS_CALL"
/** repair, retry, suspend, cancel and remove */
 | "PERMISSION_PROCESS_OPERATE"
/** enqueue jobs, and change and cancel them */
 | "PERMISSION_JOB_ENQUEUE"
/** take tasks and jobs as a worker */
 | "PERMISSION_JOB_WORK" | "PERMISSION_CRON_WRITE"
/** store templates of flows */
 | "PERMISSION_FLOW_WRITE"
/** answer the waits of runs */
 | "PERMISSION_WAIT_ANSWER"
/** see settings and health of namespaces, and workers */
 | "PERMISSION_NAMESPACE_READ"
/** change and delete namespaces, constraints and sinks */
 | "PERMISSION_NAMESPACE_WRITE"
/** drain nodes */
 | "PERMISSION_NODE_OPERATE"
/** see the commands of operators */
 | "PERMISSION_AUDIT_READ"
/** manage keys, grants and logins */
 | "PERMISSION_AUTH_ADMIN";
/** Scope is where a principal must have the permission that a method needs. */
export type Scope = "SCOPE_UNSPECIFIED"
/** in the namespaces of the request */
 | "SCOPE_NAMESPACE"
/**
 * Like NAMESPACE. A request without a namespace applies to the namespaces in which the principal
 * has the permission.
 */
 | "SCOPE_VISIBLE"
/**
 * In the namespaces of the request, including those of its lease tokens. A request that names
 * none needs the permission in some namespace.
 */
 | "SCOPE_NAMED"
/** in all namespaces */
 | "SCOPE_ENGINE";
export type KeyState = "KEY_STATE_UNSPECIFIED" | "KEY_STATE_VALID" | "KEY_STATE_EXPIRED" | "KEY_STATE_REVOKED";
export type ProcessStatus = "PROCESS_STATUS_UNSPECIFIED"
/** its INIT task has not finished */
 | "PROCESS_STATUS_INIT"
/** accepts calls, and its timers fire */
 | "PROCESS_STATUS_RUNNING"
/** a task failed permanently; waits for Repair */
 | "PROCESS_STATUS_ERROR"
/** stopped by an operator */
 | "PROCESS_STATUS_SUSPENDED"
/** terminal, by the processor's complete action */
 | "PROCESS_STATUS_COMPLETED"
/** terminal */
 | "PROCESS_STATUS_CANCELLED";
export type TaskType = "TASK_TYPE_UNSPECIFIED" | "TASK_TYPE_INIT" | "TASK_TYPE_CALL"
/** a call without a waiting caller */
 | "TASK_TYPE_NOTIFY" | "TASK_TYPE_REPAIR"
/** a timer that fired */
 | "TASK_TYPE_TIMEOUT"
/** a removal timer that fired; the processor is not called */
 | "TASK_TYPE_REMOVE" | "TASK_TYPE_CANCEL";
export type TaskStatus = "TASK_STATUS_UNSPECIFIED" | "TASK_STATUS_WAITING" | "TASK_STATUS_RUNNING"
/** a timer that waits while a task of the process waits or runs */
 | "TASK_STATUS_BLOCKED" | "TASK_STATUS_FINISHED" | "TASK_STATUS_ERROR" | "TASK_STATUS_CANCELLED";
/** How long a request waits. */
export type Wait = 
/** WAIT_COMPLETED */
"WAIT_UNSPECIFIED"
/**
 * Until the task has run. After the timeout, the request fails with DEADLINE_EXCEEDED, and the
 * task continues.
 */
 | "WAIT_COMPLETED"
/** until the task is stored */
 | "WAIT_ACCEPTED";
export type HistoryRangeDirection = 
/** forward */
"DIRECTION_UNSPECIFIED" | "DIRECTION_FORWARD" | "DIRECTION_BACKWARD";
export type ErrorDetailReason = "REASON_UNSPECIFIED"
/** NOT_FOUND */
 | "REASON_NAMESPACE_NOT_FOUND"
/** NOT_FOUND */
 | "REASON_PROCESS_NOT_FOUND"
/** NOT_FOUND */
 | "REASON_TASK_NOT_FOUND"
/** ALREADY_EXISTS */
 | "REASON_PROCESS_EXISTS"
/** ALREADY_EXISTS: the key was used for another request */
 | "REASON_IDEMPOTENCY_MISMATCH"
/** FAILED_PRECONDITION: the status does not allow this */
 | "REASON_PROCESS_STATUS"
/** ABORTED: the processor failed; see failure */
 | "REASON_TASK_FAILED"
/** FAILED_PRECONDITION: the processor refused it; see rejection */
 | "REASON_TASK_REJECTED"
/** ABORTED */
 | "REASON_TASK_CANCELLED"
/** DEADLINE_EXCEEDED: the task continues; use AwaitTask to wait for it */
 | "REASON_WAIT_TIMEOUT"
/** RESOURCE_EXHAUSTED: nothing was stored; try again later */
 | "REASON_OVERLOADED"
/**
 * INVALID_ARGUMENT: a field exceeds its limit. RESOURCE_EXHAUSTED: the whole message is too
 * large.
 */
 | "REASON_TOO_LARGE"
/** FAILED_PRECONDITION */
 | "REASON_LEASE_LOST"
/** ABORTED */
 | "REASON_STALE_ETAG"
/** ALREADY_EXISTS: an unfinished run has the same scope; process_id identifies it */
 | "REASON_SAME_SCOPE"
/** NOT_FOUND */
 | "REASON_TEMPLATE_NOT_FOUND"
/** FAILED_PRECONDITION: disabled, not schedulable or not repeatable */
 | "REASON_TEMPLATE_DISABLED"
/** INVALID_ARGUMENT: the message names the paths */
 | "REASON_PAYLOAD_SCHEMA"
/** FAILED_PRECONDITION: the run has ended, or its template does not support cancelling */
 | "REASON_NOT_CANCELLABLE"
/** INVALID_ARGUMENT */
 | "REASON_INVALID"
/**
 * UNAVAILABLE: the request may or may not have been stored; repeat it with the same idempotency
 * key
 */
 | "REASON_UNAVAILABLE"
/** UNAUTHENTICATED: no token, or one that is not valid */
 | "REASON_UNAUTHENTICATED"
/** PERMISSION_DENIED: the message names the missing permission */
 | "REASON_PERMISSION"
/** FAILED_PRECONDITION */
 | "REASON_NAMESPACE_PAUSED"
/** NOT_FOUND */
 | "REASON_CRON_NOT_FOUND"
/** NOT_FOUND */
 | "REASON_JOB_NOT_FOUND"
/** FAILED_PRECONDITION: the namespace is being deleted */
 | "REASON_NAMESPACE_DELETING"
/**
 * FAILED_PRECONDITION: DeleteNamespace needs with_data, or the configuration file would create
 * the namespace again
 */
 | "REASON_NAMESPACE_IN_USE"
/** OUT_OF_RANGE: a watch cannot continue from its cursor without a gap, see oldest_cursor */
 | "REASON_CURSOR_LOST";
/** WaitsFor is the reason why a task does not run. */
export type WaitsFor = "WAITS_FOR_UNSPECIFIED" | "WAITS_FOR_TIME"
/** a free slot on a node, or a worker */
 | "WAITS_FOR_PLACE"
/** another task of the process, which runs or is older */
 | "WAITS_FOR_PROCESS"
/** the process is suspended */
 | "WAITS_FOR_OPERATOR" | "WAITS_FOR_CONSTRAINT"
/** the response of a call, which a later task of its process provides */
 | "WAITS_FOR_REPLY";
export type BulkVerb = "BULK_VERB_UNSPECIFIED" | "BULK_VERB_SIMPLE_REPAIR" | "BULK_VERB_SUSPEND" | "BULK_VERB_RESUME" | "BULK_VERB_CANCEL" | "BULK_VERB_REMOVE"
/**
 * RetryJob or RetryRun, only for jobs and runs. Jobs and runs support RETRY, CANCEL and, after
 * their end, REMOVE.
 */
 | "BULK_VERB_RETRY"
/** Repair by the processor, with args. Only for processes. */
 | "BULK_VERB_REPAIR";
/** ChangeKind is the kind of a change. */
export type ChangeKind = "CHANGE_KIND_UNSPECIFIED"
/** a process has stored an event */
 | "CHANGE_KIND_EVENT"
/** a process was created, has completed, failed, … */
 | "CHANGE_KIND_LIFECYCLE"
/** an event of a job */
 | "CHANGE_KIND_JOB"
/** an event of a step of a run */
 | "CHANGE_KIND_STEP"
/** an event of a run */
 | "CHANGE_KIND_RUN"
/** a decision about a fire of a cron, or the end of its run */
 | "CHANGE_KIND_FIRE";
/** ZombiePolicy defines what happens to a task whose node or worker died. */
export type ZombiePolicy = 
/** RETRY */
"ZOMBIE_POLICY_UNSPECIFIED"
/** it is retried, up to max_attempts; then the process goes to ERROR */
 | "ZOMBIE_POLICY_RETRY"
/** the process goes to ERROR with "zombie detected" */
 | "ZOMBIE_POLICY_ERROR";
export type JobEvents = 
/** ALL */
"JOB_EVENTS_UNSPECIFIED" | "JOB_EVENTS_ALL"
/** only the events with which jobs and runs end */
 | "JOB_EVENTS_ENDS" | "JOB_EVENTS_NONE";
export type HistoryMode = 
/** FULL */
"HISTORY_MODE_UNSPECIFIED" | "HISTORY_MODE_FULL"
/** no events; the processor uses aux_state */
 | "HISTORY_MODE_NONE"
/** only the last event */
 | "HISTORY_MODE_LAST";
/** HealthStatus reports whether the tasks of a namespace run. */
export type HealthStatus = "HEALTH_STATUS_UNSPECIFIED" | "HEALTH_STATUS_OK"
/** tasks run, but wait a long time, fail, or do not run on every node */
 | "HEALTH_STATUS_DEGRADED"
/** no task starts */
 | "HEALTH_STATUS_DOWN";
export type ConnectProcessorEncoding = 
/** PROTO */
"ENCODING_UNSPECIFIED" | "ENCODING_PROTO"
/** a plain POST with JSON; the processor needs no generated code */
 | "ENCODING_JSON"
/** a plain POST with MessagePack (application/msgpack) */
 | "ENCODING_MSGPACK";
export type ConnectProcessorProtocol = 
/** CONNECT */
"PROTOCOL_UNSPECIFIED" | "PROTOCOL_CONNECT" | "PROTOCOL_GRPC";
export type HealthProblemKind = "KIND_UNSPECIFIED" | "KIND_PAUSED"
/** no live node runs tasks */
 | "KIND_NO_NODE"
/** this node has no such processor, for example an unknown built-in one */
 | "KIND_UNSERVABLE"
/** the processor accepts no connections from this node */
 | "KIND_UNREACHABLE"
/** no worker has polled in the last 30 seconds */
 | "KIND_NO_WORKERS"
/** a task has waited for a slot or a worker for more than 10 seconds */
 | "KIND_BEHIND"
/** requests are rejected: max_backlog tasks wait */
 | "KIND_BACKLOG_FULL"
/** a process has failed in the last 5 minutes */
 | "KIND_ERRORS";
/** SinkFormat is how a change is encoded. */
export type SinkFormat = 
/** CLOUDEVENTS */
"SINK_FORMAT_UNSPECIFIED"
/** CloudEvents 1.0 in JSON, with the change as data */
 | "SINK_FORMAT_CLOUDEVENTS"
/** the attributes as headers, the change as JSON in the body */
 | "SINK_FORMAT_CLOUDEVENTS_BINARY"
/** the attributes as headers, the Change as protobuf in the body */
 | "SINK_FORMAT_PROTOBUF";
/** SinkState reports whether a sink delivers changes. */
export type SinkState = "SINK_STATE_UNSPECIFIED" | "SINK_STATE_ACTIVE"
/** by PauseSink, until ResumeSink */
 | "SINK_STATE_PAUSED"
/** the last delivery failed and will be repeated */
 | "SINK_STATE_FAILING"
/**
 * The engine has stopped: a change became older than max_lag, or changes were deleted before
 * they were delivered. ResumeSink tries again. RewindSink lets the sink continue from another
 * time.
 */
 | "SINK_STATE_BROKEN"
/** The target accepts no changes (HTTP status 410). The sink delivers nothing until ResumeSink. */
 | "SINK_STATE_DISABLED";
export type UniqueScope = 
/** ACTIVE */
"UNIQUE_SCOPE_UNSPECIFIED"
/** until it ends, and for ttl after that */
 | "UNIQUE_SCOPE_ACTIVE"
/** until it runs; one more job can wait while it runs */
 | "UNIQUE_SCOPE_WAITING";
export type WaitActionKind = 
/** EXTERNAL */
"KIND_UNSPECIFIED"
/** an external system, which needs the token of the wait */
 | "KIND_EXTERNAL"
/** a person who uses the console or the CLI */
 | "KIND_HUMAN";
export type WaitActionDueAction = 
/** FAIL */
"DUE_ACTION_UNSPECIFIED"
/** the step is FAILED with reason `timeout` */
 | "DUE_ACTION_FAIL"
/** the step is SKIPPED */
 | "DUE_ACTION_SKIP"
/** the step is SUCCEEDED with due_result */
 | "DUE_ACTION_SUCCEED";
/** WorkerDirective is a command to a worker. */
export type WorkerDirective = 
/** CONTINUE */
"WORKER_DIRECTIVE_UNSPECIFIED" | "WORKER_DIRECTIVE_CONTINUE"
/** take no new leases, and finish the tasks that you have */
 | "WORKER_DIRECTIVE_QUIET"
/**
 * Take no new leases, finish the tasks that you have, and exit. Leases that have not ended after
 * the grace period are lost.
 */
 | "WORKER_DIRECTIVE_STOP";
export type JobState = "JOB_STATE_UNSPECIFIED"
/** waits for its run_time, or for the next try of a busy processor */
 | "JOB_STATE_SCHEDULED" | "JOB_STATE_AVAILABLE" | "JOB_STATE_RUNNING"
/** waits for its next attempt */
 | "JOB_STATE_RETRYABLE" | "JOB_STATE_CANCEL_REQUESTED" | "JOB_STATE_SUCCEEDED"
/** no attempts left; RetryJob runs it again */
 | "JOB_STATE_FAILED" | "JOB_STATE_CANCELLED";
export type LeaseDirectiveDirective = "DIRECTIVE_UNSPECIFIED" | "DIRECTIVE_CONTINUE"
/** stop at the next checkpoint and complete with Cancelled */
 | "DIRECTIVE_CANCEL"
/** the lease expired or was revoked: stop, because results are ignored */
 | "DIRECTIVE_LOST";
/** ScopePolicy defines what StartRun does if a run with the same dedupe key has not ended. */
export type ScopePolicy = 
/** ALLOW */
"SCOPE_POLICY_UNSPECIFIED" | "SCOPE_POLICY_ALLOW"
/** fails with ALREADY_EXISTS and the ID of the other run */
 | "SCOPE_POLICY_REJECT_SAME_SCOPE"
/** PENDING until the other run ends; oldest first */
 | "SCOPE_POLICY_QUEUE_SAME_SCOPE"
/** cancels the other run; PENDING until it has ended */
 | "SCOPE_POLICY_CANCEL_SAME_SCOPE"
/** returns the other run, with started = false */
 | "SCOPE_POLICY_RETURN_SAME_SCOPE";
export type StepOrder = 
/** LINEAR */
"STEP_ORDER_UNSPECIFIED"
/** one after the other, in the order of the list; without depends_on */
 | "STEP_ORDER_LINEAR"
/** in the order of depends_on; steps without dependencies start together */
 | "STEP_ORDER_GRAPH";
/** JoinRule defines when a step with depends_on may start. */
export type JoinRule = 
/** NONE_FAILED */
"JOIN_RULE_UNSPECIFIED"
/** All have ended, none failed and at least one succeeded. If all are SKIPPED, so is this step. */
 | "JOIN_RULE_NONE_FAILED"
/** all succeeded; if one is SKIPPED, so is this step */
 | "JOIN_RULE_ALL_SUCCEEDED"
/** one succeeded; the others continue */
 | "JOIN_RULE_ANY_SUCCEEDED"
/** all have ended in any status, even if the run fails; for cleanup */
 | "JOIN_RULE_ALL_ENDED";
export type RunStatus = "RUN_STATUS_UNSPECIFIED"
/** stored; blocked_on names what it waits for */
 | "RUN_STATUS_PENDING"
/** a step waits for a worker, and no step runs */
 | "RUN_STATUS_QUEUED"
/** a step other than a wait runs */
 | "RUN_STATUS_RUNNING"
/** all unfinished steps are waits */
 | "RUN_STATUS_WAITING_WORKER"
/** A worker, or a step that is not cancelable, has not finished yet. */
 | "RUN_STATUS_CANCEL_REQUESTED"
/** compensations run; then FAILED, CANCELLED or EXPIRED */
 | "RUN_STATUS_COMPENSATING" | "RUN_STATUS_SUCCEEDED"
/** no attempts left */
 | "RUN_STATUS_FAILED" | "RUN_STATUS_CANCELLED"
/** exceeded its timeout, or lost the worker of its last attempt */
 | "RUN_STATUS_EXPIRED";
export type StepStatus = "STEP_STATUS_UNSPECIFIED" | "STEP_STATUS_PENDING"
/** leased, or an open wait */
 | "STEP_STATUS_RUNNING" | "STEP_STATUS_SUCCEEDED" | "STEP_STATUS_FAILED"
/** by its condition, its join rule, its due time, or by hand */
 | "STEP_STATUS_SKIPPED" | "STEP_STATUS_CANCELLED";
export type CancelPolicyMode = 
/** COOPERATIVE */
"MODE_UNSPECIFIED"
/** the worker stops at its next checkpoint and acknowledges it */
 | "MODE_COOPERATIVE"
/** leases are revoked, and processes are CANCELLED, at once */
 | "MODE_IMMEDIATE";
/**
 * OverlapAction defines what happens if the previous run (the last one that was started) is still
 * running when a fire time comes.
 */
export type OverlapAction = 
/** ALLOW */
"OVERLAP_ACTION_UNSPECIFIED"
/** the concurrency policy decides */
 | "OVERLAP_ACTION_ALLOW"
/** no run starts; the fire is SKIPPED_OVERLAP */
 | "OVERLAP_ACTION_SKIP"
/**
 * Cancel the previous run, and start the new one at once. The previous run no longer counts for
 * max_concurrency.
 */
 | "OVERLAP_ACTION_CANCEL_PREV"
/** start up to max_overlap runs, ignoring the concurrency policy */
 | "OVERLAP_ACTION_PARALLEL"
/** Queue one run until the previous run ends. Further fires are SKIPPED_OVERLAP. */
 | "OVERLAP_ACTION_BUFFER_ONE";
/**
 * FailureAction defines what happens if the last run that was started ended as FAILED, TIMEOUT or
 * CANCELLED. Fires that started no run are ignored. With SKIP, a failure skips only one fire. A run
 * that CANCEL_PREV replaces does not count; the new run is attempt 1.
 */
export type FailureAction = 
/** RUN_NEW */
"FAILURE_ACTION_UNSPECIFIED"
/** attempt 1 */
 | "FAILURE_ACTION_RUN_NEW"
/** no run starts; the fire is SKIPPED_FAILURE */
 | "FAILURE_ACTION_SKIP"
/** the next attempt number; after max_attempts, attempt 1 again */
 | "FAILURE_ACTION_RETRY"
/** like RETRY, but fires are skipped until retry_backoff has passed */
 | "FAILURE_ACTION_BACKOFF"
/**
 * After pause_after_failures consecutive failures, fires are SKIPPED_FAILURE, except for one
 * trial per retry_backoff. A success ends this. The cron itself is not paused.
 */
 | "FAILURE_ACTION_HALF_OPEN";
/** ConcurrencyPolicy defines what happens if max_concurrency is reached. */
export type ConcurrencyPolicy = 
/** SKIP */
"CONCURRENCY_POLICY_UNSPECIFIED"
/** no run starts; the fire is SKIPPED_CONCURRENCY */
 | "CONCURRENCY_POLICY_SKIP"
/** the run waits until another one ends, in order */
 | "CONCURRENCY_POLICY_QUEUE";
/**
 * MisfirePolicy defines which fires run if fire times were missed, because the engine was down or
 * late.
 */
export type MisfirePolicy = 
/** FIRE_NOW */
"MISFIRE_POLICY_UNSPECIFIED"
/** the newest ones that can start or queue now; older ones are MISSED */
 | "MISFIRE_POLICY_FIRE_NOW"
/** only the newest one, if it is at most misfire_threshold late */
 | "MISFIRE_POLICY_SKIP"
/** the newest ones, at most catchup_limit */
 | "MISFIRE_POLICY_CATCH_UP_LIMITED";
export type Decision = "DECISION_UNSPECIFIED" | "DECISION_FIRED" | "DECISION_QUEUED" | "DECISION_SKIPPED_OVERLAP" | "DECISION_SKIPPED_FAILURE" | "DECISION_SKIPPED_CONCURRENCY"
/** dropped by the misfire policy or the catchup_window; status SKIPPED */
 | "DECISION_MISSED"
/** the queue was full; status SKIPPED */
 | "DECISION_DROPPED";
export type FireStatus = "FIRE_STATUS_UNSPECIFIED" | "FIRE_STATUS_SCHEDULED" | "FIRE_STATUS_RUNNING" | "FIRE_STATUS_SUCCESS" | "FIRE_STATUS_FAILED" | "FIRE_STATUS_TIMEOUT" | "FIRE_STATUS_CANCELLED" | "FIRE_STATUS_SKIPPED";
export type DaylightSavingGap = 
/** SHIFT */
"GAP_UNSPECIFIED"
/** if a local time does not exist, the cron fires at the end of the gap */
 | "GAP_SHIFT"
/** the cron does not fire */
 | "GAP_SKIP";
export type DaylightSavingOverlap = 
/** FIRST */
"OVERLAP_UNSPECIFIED"
/** if a local time occurs twice, the cron fires the first time */
 | "OVERLAP_FIRST" | "OVERLAP_LAST" | "OVERLAP_BOTH";
export type StartProcessTargetRunEnd = 
/** PROCESS */
"RUN_END_UNSPECIFIED"
/** The run ends when its process is COMPLETED, in ERROR, CANCELLED or removed. */
 | "RUN_END_PROCESS"
/** the run ends with the INIT task */
 | "RUN_END_INIT";
/** Needs defines the permission that a principal needs for a method. */
export interface Needs {
    permission?: Permission;
    scope?: Scope;
    /** another permission that is sufficient */
    or?: Permission;
}
/** Role is a role in the namespaces that match a pattern. */
export interface Role {
    /**
     * viewer, support, client, worker, author, admin or root. worker:NAME, worker:PREFIX* and
     * worker:* limit a worker to jobs with these names.
     */
    role?: string;
    /** NAME, PREFIX* or *, such as shop/*. The role root needs *. */
    pattern?: string;
}
/** Key is a key of a client, without its token. */
export interface Key {
    keyId?: string;
    /** what the key is for; keys with the same name belong to one client */
    name?: string;
    state?: KeyState;
    /** a client, such as key:ID, or a role of the database */
    createdBy?: string;
    createdTime?: Timestamp;
    /**
     * When the key was last used. The value lags by up to about a minute. Absent if the key was never
     * used.
     */
    usedTime?: Timestamp;
    /** absent if the key does not expire */
    expireTime?: Timestamp;
    revokedTime?: Timestamp;
    /** ID of the key that RotateKey created */
    replacedBy?: string;
    /** the first 20 */
    roles?: Role[];
    roleCount?: number;
}
export interface CreateKeyRequest {
    name?: string;
    /** The roles of the key. Each of them becomes a grant. */
    roles?: Role[];
    /** How long the key is valid, at least 1 s. If absent, there is no limit. */
    ttl?: Duration;
}
export interface CreateKeyResponse {
    key?: Key;
    /** no other response contains it */
    token?: string;
}
export interface ListKeysRequest {
    pageSize?: number;
    pageToken?: string;
    /** leave out keys that have expired or were revoked */
    validOnly?: boolean;
}
/** The newest keys come first. */
export interface ListKeysResponse {
    keys?: Key[];
    nextPageToken?: string;
}
export interface RotateKeyRequest {
    keyId?: string;
    /**
     * How long the old key stays valid, at most 365 days. The old key never expires later than before
     * the rotation. Default: 24 h. 0 revokes it at once.
     */
    overlap?: Duration;
    /**
     * How long the new key is valid, at least 1 s. Default: as long as the old key, measured from its
     * creation.
     */
    ttl?: Duration;
}
export interface RotateKeyResponse {
    /** the new key */
    key?: Key;
    /** no other response contains it */
    token?: string;
    oldKey?: Key;
}
export interface RevokeKeyRequest {
    keyId?: string;
}
export interface RevokeKeyResponse {
    key?: Key;
}
/** Grant is a role of a client. */
export interface Grant {
    /** key:ID, cert:URI, user:ISSUER#NAME, or group:NAME for all users of a group. */
    principal?: string;
    role?: Role;
    /** A client, such as key:ID, or a role of the database. Ignored in requests. */
    createdBy?: string;
    createdTime?: Timestamp;
}
export interface AddGrantRequest {
    grant?: Grant;
}
export interface AddGrantResponse {
    /** false if the client already has the role */
    added?: boolean;
}
export interface ListGrantsRequest {
    pageSize?: number;
    pageToken?: string;
    /** only grants of this client */
    principal?: string;
}
export interface ListGrantsResponse {
    /** sorted by principal */
    grants?: Grant[];
    nextPageToken?: string;
}
export interface RemoveGrantRequest {
    grant?: Grant;
}
export interface RemoveGrantResponse {
}
/** ConsoleLogin is a login of a user to the console. */
export interface ConsoleLogin {
    loginId?: string;
    /** user:ISSUER#NAME */
    user?: string;
    createdTime?: Timestamp;
    /** when it was last used; lags by up to a minute */
    usedTime?: Timestamp;
    /** When the login ends at the latest. It ends earlier if it is not used for auth.console.idle. */
    expireTime?: Timestamp;
}
export interface ListConsoleLoginsRequest {
    pageSize?: number;
    pageToken?: string;
    /** only logins of this user */
    user?: string;
}
/** The newest logins come first. */
export interface ListConsoleLoginsResponse {
    logins?: ConsoleLogin[];
    nextPageToken?: string;
}
export interface EndConsoleLoginsRequest {
    loginId?: string;
    user?: string;
}
export interface EndConsoleLoginsResponse {
    /** number of logins that were ended */
    ended?: number;
}
export interface Process {
    namespace?: string;
    processId?: string;
    status?: ProcessStatus;
    previousStatus?: ProcessStatus;
    /**
     * The reason for ERROR (the message of the failure, or "zombie detected") or for SUSPENDED (the
     * reason in the request).
     */
    detail?: string;
    /** The task that put the process into ERROR. */
    corruptedBy?: number;
    /** The processor's own state, opaque to the engine. */
    auxState?: Payload;
    /** Searchable attributes. */
    metadata?: JsonObject;
    /** The events in the requested range, in the requested direction. */
    history?: Event[];
    range?: HistoryRange;
    lastEventId?: number;
    createdTime?: Timestamp;
    statusChangedTime?: Timestamp;
    /** The pending timers, soonest first. */
    timers?: Timer[];
    cancelRequestedTime?: Timestamp;
    cancelReason?: string;
    /** empty for processes of users, else "job", "cron", "flow" or "bulk" */
    kind?: string;
    /**
     * The number of the first event of the history. It is 1 until the history is restarted, and
     * last_event_id + 1 if the history is empty.
     */
    firstEventId?: number;
    /** When the history was last restarted. Absent if never, and in requests to processors. */
    historyRestartedTime?: Timestamp;
}
/**
 * An event of a process. Events are numbered 1, 2, 3, … without gaps, even if the history is
 * restarted.
 */
export interface Event {
    eventId?: number;
    taskId?: number;
    timestamp?: Timestamp;
    /** for example format_version */
    metadata?: JsonObject;
    payload?: Payload;
}
export interface Timer {
    /** "" is the default timer */
    name?: string;
    fireTime?: Timestamp;
    /** the process is removed when the timer fires */
    remove?: boolean;
    /** WAITING, or BLOCKED while a task of the process waits or runs */
    status?: TaskStatus;
}
/**
 * A part of a history. DIRECTION_FORWARD selects event_id > offset in ascending order.
 * DIRECTION_BACKWARD selects event_id < offset in descending order.
 */
export interface HistoryRange {
    offset?: number;
    /** 0 means no events */
    limit?: number;
    direction?: HistoryRangeDirection;
}
export interface Task {
    taskId?: number;
    namespace?: string;
    processId?: string;
    type?: TaskType;
    status?: TaskStatus;
    scheduledTime?: Timestamp;
    runningTime?: Timestamp;
    finishedTime?: Timestamp;
    args?: Payload;
    context?: Payload;
    idempotencyKey?: string;
    /** counts from 1; 0 if the task has not run */
    attempt?: number;
    /** before this attempt */
    retryInterval?: Duration;
    response?: Payload;
    failure?: Failure;
    rejection?: Rejection;
    timerName?: string;
    priority?: number;
    /** The events that this task produced. Set only in traces. */
    events?: Event[];
    /**
     * The failed attempts before the current or last one, oldest first: the newest 10. Each has
     * reason, message (at most 1,000 characters), attempt, node_id and failed_time. Set only in
     * traces; a job has its own in Job.failures.
     */
    failures?: Failure[];
    /**
     * When the task was first due, if an attempt has failed. scheduled_time then belongs to the
     * current or last attempt. Set only in traces.
     */
    firstScheduledTime?: Timestamp;
}
/**
 * Failure reports that the processor could not do its work. Either the task is retried, or it fails
 * and the process goes to ERROR. The engine itself uses these reasons for tasks and jobs: timeout,
 * unavailable, bad_response, panic, zombie, lease_lost, no_workers, start_deadline, cancelled,
 * cancel_grace_expired, history_too_large, newer_state.
 */
export interface Failure {
    /** a short, stable name, compared with non_retryable_errors */
    reason?: string;
    message?: string;
    nonRetryable?: boolean;
    /** Any data for the caller. */
    details?: Json;
    /**
     * The wait before the next attempt, at most 365 days. It replaces the backoff of the job or of
     * the retry policy of the namespace, and does not add attempts. If absent or 0, the backoff
     * applies.
     */
    retryAfter?: Duration;
    /**
     * The fields below are set by the engine, only for failed attempts of jobs and in Task.failures.
     * Values from a processor or worker are ignored.
     */
    attempt?: number;
    /** the worker that ran the attempt; empty if none did */
    workerId?: string;
    failedTime?: Timestamp;
    /** true if the worker was lost and the attempt used up no retry */
    takeover?: boolean;
    /** the node that ran the attempt; only in Task.failures */
    nodeId?: string;
}
/**
 * Rejection reports that the processor refuses the request. The process does not change; only the
 * rejection is stored.
 */
export interface Rejection {
    reason?: string;
    message?: string;
    details?: Payload;
}
export interface StartRequest {
    namespace?: string;
    /** If empty, the engine chooses an ID. */
    processId?: string;
    args?: Payload;
    metadata?: JsonObject;
    /**
     * A repeated request with the same key gets the response of the first one. A different request
     * (fingerprint) with the same key fails with ALREADY_EXISTS. A key is unique within the process,
     * or within the namespace if process_id is empty.
     */
    idempotencyKey?: string;
    /** Passed to the processor with this task and with the timers that the task sets. */
    context?: Payload;
    /** the events that the processor gets */
    range?: HistoryRange;
    wait?: Wait;
    /** The time limit of the wait. Default: the step timeout of the namespace. */
    timeout?: Duration;
    /** The INIT task does not run before this time. */
    startTime?: Timestamp;
    /** order of the waiting processes of a namespace; smaller numbers run first */
    priority?: number;
}
export interface StartResponse {
    processId?: string;
    taskId?: number;
    response?: Payload;
}
export interface CallRequest {
    namespace?: string;
    processId?: string;
    args?: Payload;
    idempotencyKey?: string;
    context?: Payload;
    range?: HistoryRange;
    /** With WAIT_ACCEPTED, the task is of type NOTIFY. */
    wait?: Wait;
    timeout?: Duration;
    /** order among processes; calls to one process keep their order */
    priority?: number;
}
export interface CallResponse {
    taskId?: number;
    response?: Payload;
}
export interface RepairRequest {
    namespace?: string;
    processId?: string;
    processor?: RepairRequestProcessorRepair;
    simple?: RepairRequestSimpleRepair;
    idempotencyKey?: string;
    context?: Payload;
    wait?: Wait;
    timeout?: Duration;
}
export interface RepairRequestProcessorRepair {
    args?: Payload;
    range?: HistoryRange;
}
export interface RepairRequestSimpleRepair {
}
export interface RepairResponse {
    /** 0 if no task was needed */
    taskId?: number;
    response?: Payload;
}
export interface AwaitTaskRequest {
    namespace?: string;
    taskId?: number;
    idempotencyKey?: string;
    /** Required. */
    processId?: string;
    /**
     * 0 returns at once; at most 10 minutes. After the timeout, the response is the task in its
     * present state, not an error.
     */
    timeout?: Duration;
}
export interface AwaitTaskResponse {
    task?: Task;
}
export interface GetProcessRequest {
    namespace?: string;
    processId?: string;
    range?: HistoryRange;
    /** How long to wait while the process is in INIT, at most 10 minutes. */
    awaitInit?: Duration;
}
export interface GetProcessResponse {
    process?: Process;
}
export interface ListProcessesRequest {
    namespace?: string;
    /**
     * An AIP-160 filter on status, process_id, kind, created_time, status_changed_time, detail,
     * corrupted_by, reason, fingerprint and metadata.*, for example
     * status = ERROR AND metadata.tenant = "acme" AND created_time > "2026-11-01T00:00:00Z"
     */
    filter?: string;
    /**
     * "created_time desc" (default), "created_time", "process_id" or "process_id desc". With a filter
     * on one status other than INIT and RUNNING, also "status_changed_time desc".
     */
    orderBy?: string;
    pageSize?: number;
    pageToken?: string;
    /**
     * Only processes of users: neither jobs nor the engine's own processes, whose IDs begin with ~,
     * such as runs, crons and bulks.
     */
    usersOnly?: boolean;
}
export interface ListProcessesResponse {
    /** without history */
    processes?: Process[];
    nextPageToken?: string;
}
export interface TraceProcessRequest {
    namespace?: string;
    processId?: string;
    pageSize?: number;
    pageToken?: string;
}
export interface TraceProcessResponse {
    /** ordered by task_id, each with its events */
    tasks?: Task[];
    nextPageToken?: string;
    /**
     * As in Process. Tasks that ended before this time, and events before first_event_id, are being
     * removed.
     */
    historyRestartedTime?: Timestamp;
    firstEventId?: number;
}
/** The stream ends when the process completes, is cancelled or is removed. */
export interface WatchProcessRequest {
    namespace?: string;
    processId?: string;
    afterEventId?: number;
}
export interface WatchProcessResponse {
    event?: Event;
    /** its status changed; without history */
    process?: Process;
}
export interface PutProcessRequest {
    namespace?: string;
    processId?: string;
    /** RUNNING or ERROR. */
    status?: ProcessStatus;
    detail?: string;
    auxState?: Payload;
    metadata?: JsonObject;
    /** event_id 1, 2, … */
    history?: Event[];
    timers?: Timer[];
    context?: Payload;
}
export interface PutProcessResponse {
    process?: Process;
}
export interface CancelProcessRequest {
    namespace?: string;
    processId?: string;
    reason?: string;
    /**
     * The grace period, from when the request is stored. Default: 30 s. 0 cancels at once, without
     * calling the processor.
     */
    grace?: Duration;
}
export interface CancelProcessResponse {
    process?: Process;
}
export interface SuspendProcessRequest {
    namespace?: string;
    processId?: string;
    reason?: string;
}
export interface SuspendProcessResponse {
    process?: Process;
}
export interface RestartHistoryRequest {
    namespace?: string;
    processId?: string;
}
export interface RestartHistoryResponse {
    process?: Process;
}
export interface ResumeProcessRequest {
    namespace?: string;
    processId?: string;
}
export interface ResumeProcessResponse {
    process?: Process;
}
export interface RemoveProcessRequest {
    namespace?: string;
    processId?: string;
}
export interface RemoveProcessResponse {
}
export interface EraseProcessRequest {
    namespace?: string;
    /** The ID of a process or a job, or ~flow/ and the ID of a run. */
    processId?: string;
    /**
     * Only for a run. If true, the processes and runs that its steps have started in the namespace,
     * and those of their steps, are also erased.
     */
    children?: boolean;
    /** only count */
    dryRun?: boolean;
    pageToken?: string;
    /**
     * If a process that would be erased was created at this time or later, the request fails with
     * FAILED_PRECONDITION. When you repeat an erasure, set this to the time of the first one, because
     * a new process may have the same ID.
     */
    createdBefore?: Timestamp;
}
export interface EraseProcessResponse {
    /** number of rows that this request erased, by table */
    rows?: {
        [key: string]: number;
    };
    /** rows that it read */
    read?: number;
    /** empty when everything is erased */
    nextPageToken?: string;
}
/** ErrorDetail is attached to every error, unless the request could not be parsed. */
export interface ErrorDetail {
    reason?: ErrorDetailReason;
    namespace?: string;
    processId?: string;
    taskId?: number;
    processStatus?: ProcessStatus;
    failure?: Failure;
    rejection?: Rejection;
    /** the path of the field, with REASON_INVALID and REASON_TOO_LARGE */
    field?: string;
    /** the oldest cursor that works, with REASON_CURSOR_LOST */
    oldestCursor?: string;
}
export interface Span {
    /** a WaitsFor in lower case, worker, processing, back_off or idle */
    what?: string;
    taskId?: number;
    fromTime?: Timestamp;
    /** absent if the span continues */
    toTime?: Timestamp;
    /** the constraint, the worker or the failure */
    detail?: string;
}
export interface ExplainProcessRequest {
    namespace?: string;
    processId?: string;
}
export interface ExplainProcessResponse {
    /** without history */
    process?: Process;
    /** oldest first */
    spans?: Span[];
    timeByWhat?: {
        [key: string]: Duration;
    };
    waitsFor?: WaitsFor;
    waitsForDetail?: string;
    /** a sentence: what happens next, and when */
    next?: string;
    nextTime?: Timestamp;
    /** a sentence: how to unblock the process */
    unblock?: string;
}
export interface CountProcessesRequest {
    /** If empty, all namespaces. */
    namespace?: string;
    /** Only processes of users, as in ListProcessesRequest. */
    usersOnly?: boolean;
}
export interface CountProcessesResponse {
    /** Keys: running (includes INIT), error, suspended, completed, cancelled. */
    countByStatus?: {
        [key: string]: number;
    };
    /**
     * Only with users_only. If true, there are more than 100,000 internal processes other than jobs,
     * so the counts may include some of them.
     */
    atMost?: boolean;
    /** The internal processes that are not counted above. Only with users_only. */
    internalByStatus?: {
        [key: string]: number;
    };
}
export interface GetOverviewRequest {
    /** If empty, all namespaces. */
    namespace?: string;
    /** How far back the samples reach. Default: one hour. */
    samplesAge?: Duration;
}
export interface GetOverviewResponse {
    /** all processes */
    countByStatus?: {
        [key: string]: number;
    };
    /** keys: time, place, process, operator, constraint */
    waitingByWhat?: {
        [key: string]: number;
    };
    oldestRunnableAge?: Duration;
    timerLatenessP99?: Duration;
    /** in the last minute */
    tasksPerSecond?: number;
    /**
     * The fields tasks_per_second, timer_lateness_p99, nodes, samples and processing_* cover all
     * namespaces. They are empty for a client that may not see all namespaces.
     */
    nodes?: Node[];
    /** the first 10,000 by name; the sums include all */
    namespaces?: NamespaceOverview[];
    /**
     * Samples, oldest first: one per ten seconds of the last hour, or one per five minutes if
     * samples_age is more than that. They start when the node that serves this request started.
     */
    samples?: OverviewSample[];
    /**
     * How long processors took to handle a task in the last minute, on the node that serves this
     * request. Absent if there were no tasks.
     */
    processingP50?: Duration;
    processingP99?: Duration;
    /** the sum of NamespaceOverview.failing_crons */
    failingCrons?: number;
    /** the sums of NamespaceOverview.internal_by_status */
    internalByStatus?: {
        [key: string]: number;
    };
    /** a namespace has internal_more */
    internalMore?: boolean;
}
export interface NamespaceOverview {
    namespace?: string;
    paused?: boolean;
    /** all processes */
    countByStatus?: {
        [key: string]: number;
    };
    /** tasks that wait for a slot or a worker; 10,000 means 10,000 or more */
    runnable?: number;
    oldestRunnableAge?: Duration;
    /** seen in the last 30 seconds */
    workers?: number;
    /** crons whose last run failed, among the first 10,000 */
    failingCrons?: number;
    /** keys: scheduled, available, running, … */
    jobsByState?: {
        [key: string]: number;
    };
    /**
     * Runs that have not ended, and runs that ended without success. Keys: pending, active,
     * cancel_requested, compensating, failed, cancelled and expired. Only the oldest 10,000
     * unfinished runs and the newest 10,000 unsuccessful runs are counted.
     */
    runsByStatus?: {
        [key: string]: number;
    };
    /** waits for a person or an external worker; 10,000 means 10,000 or more */
    openWaits?: number;
    /** The internal part of count_by_status: jobs, runs, crons and bulks. */
    internalByStatus?: {
        [key: string]: number;
    };
    /**
     * If true, more internal processes may exist than internal_by_status counts. Of those that are
     * not jobs, at most 100,000 are counted, an equal share for each namespace of the response.
     */
    internalMore?: boolean;
}
/** OverviewSample contains values of the overview of all namespaces at a point in time. */
export interface OverviewSample {
    time?: Timestamp;
    tasksPerSecond?: number;
    /** sum of NamespaceOverview.runnable of all namespaces that are not paused */
    runnable?: number;
    oldestRunnableAge?: Duration;
    timerLatenessP99?: Duration;
    processingP50?: Duration;
    processingP99?: Duration;
}
export interface ListErrorsRequest {
    namespace?: string;
    pageSize?: number;
    pageToken?: string;
}
export interface ListErrorsResponse {
    /** largest first */
    groups?: ErrorGroup[];
    nextPageToken?: string;
}
export interface ErrorGroup {
    /** hash of reason and message, without numbers and IDs */
    fingerprint?: string;
    reason?: string;
    /** of the newest failure */
    message?: string;
    count?: number;
    firstTime?: Timestamp;
    lastTime?: Timestamp;
    /**
     * A filter that finds exactly the group. It is for ListProcesses and StartBulk. If jobs is set,
     * it is for ListJobs and bulks of kind job. If runs is set, it is for ListRuns and bulks of kind
     * flow.
     */
    filter?: string;
    /**
     * The group contains flow runs that are FAILED or EXPIRED. RetryRun continues a run. RepeatRun
     * starts a new one with the same payload.
     */
    runs?: boolean;
    /** the same failure in two namespaces makes two groups */
    namespace?: string;
    /**
     * If set, the group is a failing cron. count is the number of its consecutive failed runs. The
     * filter is for ListCrons, and the fingerprint is that of the last failure.
     */
    cronId?: string;
    /** process_id, job_id, run_id or cron_id of the newest failure */
    newestId?: string;
    /** the group contains FAILED jobs */
    jobs?: boolean;
}
export interface Node {
    nodeId?: string;
    address?: string;
    version?: string;
    startedTime?: Timestamp;
    beatTime?: Timestamp;
    running?: number;
    draining?: boolean;
    /** the node accepts requests but runs no tasks (engine.requests_only) */
    requestsOnly?: boolean;
}
export interface ListNodesRequest {
}
export interface ListNodesResponse {
    /** the newest 1,000, by node_id */
    nodes?: Node[];
}
export interface DrainNodeRequest {
    nodeId?: string;
}
export interface DrainNodeResponse {
    node?: Node;
}
export interface AuditEntry {
    auditId?: number;
    time?: Timestamp;
    actor?: string;
    /** address */
    source?: string;
    method?: string;
    namespace?: string;
    /** the object of the request */
    subject?: string;
    /**
     * The arguments, without payloads. If a configuration was changed, before and after contain it,
     * without secrets. For a template, they contain only the version.
     */
    details?: JsonObject;
}
export interface ListAuditRequest {
    namespace?: string;
    /** An AIP-160 filter on actor, method, subject and time. */
    filter?: string;
    pageSize?: number;
    pageToken?: string;
}
export interface ListAuditResponse {
    /** newest first */
    entries?: AuditEntry[];
    nextPageToken?: string;
}
export interface Bulk {
    namespace?: string;
    bulkId?: string;
    filter?: string;
    verb?: BulkVerb;
    /** processes per second; 0 means 100 */
    rate?: number;
    /** so far: done, failed, skipped and to be retried */
    matched?: number;
    done?: number;
    failed?: number;
    /** the newest 100, newest first; only set by GetBulk */
    failures?: BulkFailure[];
    /** COMPLETED at the end, CANCELLED after CancelBulk */
    status?: ProcessStatus;
    createdTime?: Timestamp;
    reason?: string;
    /** their status did not allow the verb, or they had been removed */
    skipped?: number;
    /** number of matches at the start, counted for at most one second */
    expected?: number;
    /** there were more matches than were counted */
    expectedMore?: boolean;
    /** the process_id that was handled last; the oldest come first */
    position?: string;
    /** who started it; empty if the engine does not authenticate requests */
    actor?: string;
    finishedTime?: Timestamp;
    /** the reason for ERROR */
    detail?: string;
    /** nothing was stored, and there is no bulk_id */
    dryRun?: boolean;
    /** only for a dry run: the 20 oldest that match */
    sampleProcessIds?: string[];
    /** "" for processes; "job" or "flow" if its IDs are those of jobs or runs */
    kind?: string;
    /** Args of REPAIR. ListBulks does not set them. */
    args?: Payload;
}
export interface BulkFailure {
    processId?: string;
    error?: string;
}
export interface StartBulkRequest {
    namespace?: string;
    /**
     * A filter of ListProcesses, ListJobs or ListRuns (see kind). It must not be empty. process_id =
     * "*", job_id = "*" or run_id = "*" matches all processes of users, jobs or runs. The engine's
     * own processes and the jobs of steps never match.
     */
    filter?: string;
    verb?: BulkVerb;
    /** Processes per second, 0.001 to 10,000. 0 means 100. */
    rate?: number;
    /** counts for at most five seconds and changes nothing */
    dryRun?: boolean;
    reason?: string;
    idempotencyKey?: string;
    /** What the verb applies to: empty for processes of users, "job" for jobs, "flow" for runs. */
    kind?: string;
    /** Args of REPAIR, for each processor. */
    args?: Payload;
}
export interface StartBulkResponse {
    bulk?: Bulk;
}
export interface GetBulkRequest {
    namespace?: string;
    bulkId?: string;
}
export interface GetBulkResponse {
    bulk?: Bulk;
}
export interface ListBulksRequest {
    namespace?: string;
    pageSize?: number;
    pageToken?: string;
}
export interface ListBulksResponse {
    bulks?: Bulk[];
    nextPageToken?: string;
}
export interface CancelBulkRequest {
    namespace?: string;
    bulkId?: string;
}
export interface CancelBulkResponse {
    bulk?: Bulk;
}
export interface Namespace {
    namespace?: string;
    processor?: ProcessorConfig;
    retryPolicy?: RetryPolicy;
    /** The time limit of one attempt of a task. Default: 60 s. */
    stepTimeout?: Duration;
    /** How many tasks of this namespace run at the same time on one node. Default: 1,000. */
    maxRunning?: number;
    zombiePolicy?: ZombiePolicy;
    /** The events that the processor gets if the request sets no range. */
    historyMode?: HistoryMode;
    /** How long processes, jobs and runs are kept after their end. 0 means no limit. */
    retention?: Duration;
    /**
     * How many calls may wait in one process, without the one that runs. Further calls fail with
     * RESOURCE_EXHAUSTED. Default: 1,000.
     */
    maxWaiting?: number;
    paused?: boolean;
    createdTime?: Timestamp;
    /** Which events of jobs and runs are stored. */
    jobEvents?: JobEvents;
    /**
     * How many tasks may wait for a slot. While fewer tasks wait, a request that gets no slot within
     * 100 ms is stored. Otherwise, if its client waits for the response, it fails with
     * RESOURCE_EXHAUSTED. Default: 10 times max_running.
     */
    maxBacklog?: number;
    /**
     * How long FAILED jobs, and FAILED or EXPIRED runs, are kept. Runs are kept at least for
     * retention. 0 means the value of retention.
     */
    failedRetention?: Duration;
    /** How long CANCELLED processes and jobs are kept. 0 means the value of retention. */
    cancelledRetention?: Duration;
    /**
     * A CEL expression on job.name, job.args, job.priority, job.tags and job.metadata, such as
     * job.metadata.tenant. Jobs of the same priority run in rounds, and each round has one job of
     * each key. A job for which the expression fails has the key "". Jobs that were enqueued without
     * this setting, jobs for several workers and tasks of processes run before other jobs of their
     * priority. If empty, jobs of the same priority run in the order in which they were enqueued.
     */
    fairnessKey?: string;
    /** only while the namespace is being deleted */
    deletion?: NamespaceDeletion;
    /** What the change stream records. If absent, it records nothing. */
    changes?: ChangeSettings;
    /**
     * The other namespaces to which the processor may send commands: NAME, PREFIX* or *. If a
     * response has a command to any other namespace, the attempt fails with the reason bad_response.
     */
    commandNamespaces?: string[];
}
/**
 * ChangeSettings defines which changes of a namespace are recorded. Each change is recorded in its
 * own transaction, beginning with the first transaction after PutNamespace.
 */
export interface ChangeSettings {
    /** If empty, nothing is recorded. JOB, STEP and RUN record the events that job_events keeps. */
    kinds?: ChangeKind[];
    /** Whether the payloads of events are recorded. If false, only their numbers and metadata are. */
    payloads?: boolean;
    /**
     * The minimum time for which changes are kept. The changes of a day are deleted together, after
     * the longest retention of all namespaces. Default: 7 days.
     */
    retention?: Duration;
}
/** NamespaceDeletion is the progress of a DeleteNamespace. */
export interface NamespaceDeletion {
    requestedTime?: Timestamp;
    /**
     * If false, the namespace was empty. If data is stored before the deletion begins, it is
     * cancelled.
     */
    withData?: boolean;
    /**
     * Live nodes that may still accept requests for the namespace. Nothing is deleted until there are
     * none.
     */
    waitingForNodes?: number;
    /** each up to 10,000, without kinds that are 0 */
    left?: DataCount[];
}
/** DataCount is the number of objects of one kind in a namespace. */
export interface DataCount {
    /**
     * processes, jobs, runs, crons, templates, waiting_tasks, running_tasks, ended_tasks, events,
     * idempotency_keys, unique_keys, answers, messages, dead_letters, job_events, cron_fires,
     * changes, sinks, constraints, paused_job_names or workers. Jobs, runs and crons are processes as
     * well.
     */
    kind?: string;
    /** of processes, jobs and runs */
    status?: string;
    count?: number;
    /** not all were counted */
    orMore?: boolean;
}
export interface ProcessorConfig {
    /** push: the engine calls ProcessorService */
    connect?: ConnectProcessor;
    /** WorkerService */
    pull?: PullProcessor;
    /** a registered Go processor that runs inside the engine */
    builtin?: BuiltinProcessor;
}
export interface ConnectProcessor {
    url?: string;
    encoding?: ConnectProcessorEncoding;
    protocol?: ConnectProcessorProtocol;
    /**
     * Names have 1 to 256 bytes and values at most 8 KiB, all together at most 64 KiB.
     * ${secret:NAME} in a value is replaced by a secret (progressor secret put). Values are stored
     * encrypted. Responses have REDACTED in place of a value that may be secret; a put with REDACTED
     * keeps the stored value if the requests go to the same hosts.
     */
    headers?: {
        [key: string]: string;
    };
    /**
     * Other URLs of the same processor. Attempts are spread over url and these. If a URL cannot be
     * reached or rejects an attempt because it is busy, the next URL gets the attempt.
     */
    moreUrls?: string[];
    /**
     * Names of secrets (progressor secret put) with keys of Standard Webhooks: whsec_ followed by 24
     * to 64 bytes in base64, or whsk_ followed by an Ed25519 private key. If any are set, each
     * request has the headers webhook-id, webhook-timestamp and webhook-signature, with a signature
     * of each key. With two keys, one of them can be replaced without a rejected request.
     * PROTOCOL_GRPC does not support them.
     */
    signingSecrets?: string[];
    /** all URLs must be https */
    tls?: TargetTls;
    /** Whether the processor may store checkpoints: ProcessRequest gets a checkpoint_token. */
    checkpoints?: boolean;
}
/** TargetTls are the settings of TLS for requests to an https URL. */
export interface TargetTls {
    /** The CA certificates to trust, in PEM. Default: those of the system. */
    caPem?: string;
    /**
     * Name of a secret (progressor secret put) with the certificate that the engine presents,
     * followed by those of its authorities, and its private key, all in PEM. A new value is used
     * within 10 s.
     */
    certificateSecret?: string;
}
export interface PullProcessor {
    /** Default: 30 s. */
    leaseDuration?: Duration;
}
export interface BuiltinProcessor {
    name?: string;
}
/**
 * RetryPolicy defines how failed tasks are retried. After attempt n, the next attempt waits for
 * min(initial_interval * backoff_coefficient^(n-1), max_interval), with jitter.
 */
export interface RetryPolicy {
    /** Default: 5 s. */
    initialInterval?: Duration;
    /** Default: 1.0. */
    backoffCoefficient?: number;
    /** Default: 180 s. */
    maxInterval?: Duration;
    /** default: 3 */
    maxAttempts?: number;
    /** Reasons of failures that are not retried. */
    nonRetryableErrors?: string[];
    /** A random part of the interval, 0 to 1. Default: 0.1. */
    jitter?: number;
}
export interface PutNamespaceRequest {
    namespace?: Namespace;
}
export interface PutNamespaceResponse {
    namespace?: Namespace;
}
export interface GetNamespaceRequest {
    namespace?: string;
}
export interface GetNamespaceResponse {
    namespace?: Namespace;
}
export interface ListNamespacesRequest {
    /** 0 means 1,000. */
    pageSize?: number;
    pageToken?: string;
}
export interface ListNamespacesResponse {
    /** by name */
    namespaces?: Namespace[];
    nextPageToken?: string;
}
export interface PauseNamespaceRequest {
    namespace?: string;
}
export interface PauseNamespaceResponse {
    namespace?: Namespace;
}
export interface ResumeNamespaceRequest {
    namespace?: string;
}
export interface ResumeNamespaceResponse {
    namespace?: Namespace;
}
export interface GetNamespaceHealthRequest {
    /**
     * Default: all namespaces, at most 1,000, by name. If set, the node also opens a connection to
     * the processor.
     */
    namespace?: string;
}
export interface GetNamespaceHealthResponse {
    /** by name */
    namespaces?: NamespaceHealth[];
}
export interface NamespaceHealth {
    namespace?: string;
    /** the worst of the problems */
    status?: HealthStatus;
    problems?: HealthProblem[];
    paused?: boolean;
    /** tasks that wait for a slot or a worker; 10,000 means 10,000 or more */
    runnable?: number;
    oldestRunnableAge?: Duration;
    /** that have polled in the last 30 seconds */
    workers?: number;
    processesInError?: number;
    /** since a process went to ERROR and stayed in it */
    newestErrorAge?: Duration;
}
/** HealthProblem is a reason why a namespace is not OK. */
export interface HealthProblem {
    kind?: HealthProblemKind;
    /** DEGRADED or DOWN */
    status?: HealthStatus;
    detail?: string;
    /** what to do */
    next?: string;
}
export interface DeleteNamespaceRequest {
    namespace?: string;
    /**
     * Whether to also delete its processes, jobs, runs, crons, templates and all other data. If
     * false, the request fails with FAILED_PRECONDITION if the namespace has processes, templates or
     * tasks.
     */
    withData?: boolean;
    /** If true, the data that would be deleted is only counted. */
    dryRun?: boolean;
}
export interface DeleteNamespaceResponse {
    namespace?: Namespace;
    /** The data of the namespace, each kind up to 1,000,000, without kinds that are 0. */
    counts?: DataCount[];
}
/**
 * Sink delivers the changes of a namespace to a target. Each change is delivered at least once, and
 * the changes of a process are delivered in order.
 */
export interface Sink {
    namespace?: string;
    sinkId?: string;
    /** Only changes of these kinds. Default: all kinds that the namespace records. */
    kinds?: ChangeKind[];
    /**
     * A CEL expression on change, which is a Change, such as change.type == "failed". Only changes
     * for which it is true are delivered. A change for which it fails is not delivered.
     */
    filter?: string;
    format?: SinkFormat;
    webhook?: WebhookTarget;
    kafka?: KafkaTarget;
    /**
     * The maximum age of a change that has not been delivered. Until then, the engine keeps the
     * change for the sink, even after its retention. If a change becomes older, the sink is BROKEN.
     * Default: 7 days.
     */
    maxLag?: Duration;
    /** set by the engine */
    status?: SinkStatus;
    /** set by the engine */
    createdTime?: Timestamp;
    /** set by the engine */
    updatedTime?: Timestamp;
}
/** WebhookTarget receives each change as a POST, according to Standard Webhooks. */
export interface WebhookTarget {
    url?: string;
    /**
     * The keys that sign the requests: whsec_ followed by 24 to 64 bytes in base64, or whsk_ followed
     * by an Ed25519 private key, or ${secret:NAME} for a secret with such a value. A request has a
     * signature of each key, so that receivers accept it while a key is replaced. The keys are
     * never returned. If empty, PutSink keeps the stored keys, or creates an unsigned sink. See
     * unsigned.
     */
    secrets?: string[];
    /** set by the engine: true if keys are stored */
    signed?: boolean;
    /** The time limit of one request. Default: 10 s. */
    timeout?: Duration;
    /** How many requests run at the same time, for different processes. Default: 8. */
    maxConcurrent?: number;
    /**
     * If true, PutSink removes the stored keys, so that requests have no signature. It must be false
     * if secrets is not empty.
     */
    unsigned?: boolean;
    /** the URL must be https */
    tls?: TargetTls;
}
/**
 * KafkaTarget is a topic of Kafka. The key of a message is NAMESPACE:PROCESS_ID, so the changes of
 * a process are in one partition.
 */
export interface KafkaTarget {
    /** Some brokers of the cluster, each as host:port. */
    brokers?: string[];
    /** The topic may contain {namespace} and {kind}. A slash in the namespace becomes a dot. */
    topic?: string;
    /** ask the brokers to create a missing topic */
    createTopic?: boolean;
    /** default: no TLS */
    tls?: KafkaTls;
    /** default: no authentication */
    sasl?: KafkaSasl;
    /** The time limit of a delivery. Default: 30 s. */
    timeout?: Duration;
    /** The maximum size of a message. A larger change becomes a dead letter. Default: 1,000,000. */
    maxMessageBytes?: number;
}
/** KafkaTls encrypts the connections to the brokers. */
export interface KafkaTls {
    /** The CA certificates to trust, in PEM. Default: those of the system. */
    caPem?: string;
    /** Name of a secret with the certificate that the engine presents, as in TargetTls. */
    certificateSecret?: string;
}
/** KafkaSasl authenticates the engine. */
export interface KafkaSasl {
    mechanism?: string;
    user?: string;
    /**
     * The password may be ${secret:NAME}, which is replaced by a secret. It is never returned. If it
     * is empty, PutSink keeps the stored password, unless the brokers or the user change.
     */
    password?: string;
}
/** SinkStatus is the progress of a sink. */
export interface SinkStatus {
    state?: SinkState;
    /** the position after the delivered changes, as in WatchChanges */
    cursor?: string;
    /**
     * Number of changes that were recorded after the cursor, including those that the sink does not
     * select.
     */
    lagChanges?: number;
    /** age of the oldest of them */
    lag?: Duration;
    /** number of changes delivered since the sink was created */
    deliveredChanges?: number;
    /** of the last successful delivery */
    deliveredTime?: Timestamp;
    /** number of failed deliveries since the last successful one */
    failures?: number;
    lastError?: string;
    lastErrorTime?: Timestamp;
    /** set if the sink is FAILING */
    nextAttemptTime?: Timestamp;
    /** the node that delivers; 0 if there is none */
    nodeId?: number;
    /** Number of changes that the target rejected permanently since the sink was created. */
    deadLetters?: number;
    /** The newest dead letters, at most 100. Only GetSink returns them. */
    recentDeadLetters?: SinkDeadLetter[];
    /** number of dead letters that the sink has now */
    storedDeadLetters?: number;
    /** number of dead letters that wait to be delivered again */
    retries?: number;
}
/**
 * SinkDeadLetter is a change that a target rejected permanently. The engine keeps the newest 1,000
 * of a sink, and those that wait to be delivered again.
 */
export interface SinkDeadLetter {
    changeId?: number;
    kind?: ChangeKind;
    type?: string;
    processId?: string;
    changeTime?: Timestamp;
    /** of the last attempt */
    error?: string;
    /** when the last attempt failed */
    time?: Timestamp;
    /** number of failed attempts */
    attempts?: number;
    /** when its retry was requested, if it waits for one */
    retryTime?: Timestamp;
    /** The change was deleted after its retention: it cannot be delivered again. */
    changeDeleted?: boolean;
}
export interface PutSinkRequest {
    sink?: Sink;
    /**
     * A new sink begins with the changes that were recorded at or after this time. 1970-01-01 means
     * the oldest change. Default: from now on. An existing sink keeps its cursor.
     */
    fromTime?: Timestamp;
}
export interface PutSinkResponse {
    sink?: Sink;
}
export interface GetSinkRequest {
    namespace?: string;
    sinkId?: string;
}
export interface GetSinkResponse {
    sink?: Sink;
}
export interface ExplainSinkRequest {
    namespace?: string;
    sinkId?: string;
}
export interface ExplainSinkResponse {
    sink?: Sink;
    /** sentences: what the sink does, or why it does not deliver */
    detail?: string;
    /** a sentence: what happens next, and when */
    next?: string;
    /** absent if unknown */
    nextTime?: Timestamp;
    /** a sentence: how to unblock the sink, with the command */
    unblock?: string;
}
export interface ListSinksRequest {
    /** Default: all namespaces. */
    namespace?: string;
    /** Default: 100. */
    pageSize?: number;
    pageToken?: string;
}
export interface ListSinksResponse {
    /** by namespace and ID */
    sinks?: Sink[];
    nextPageToken?: string;
}
export interface PauseSinkRequest {
    namespace?: string;
    sinkId?: string;
}
export interface PauseSinkResponse {
    sink?: Sink;
}
export interface ResumeSinkRequest {
    namespace?: string;
    sinkId?: string;
}
export interface ResumeSinkResponse {
    sink?: Sink;
}
export interface RewindSinkRequest {
    namespace?: string;
    sinkId?: string;
    /**
     * The sink continues with the changes that were recorded at or after this time. 1970-01-01 means
     * the oldest change. A time later than the cursor skips changes. If changes since this time were
     * deleted, the request fails with OUT_OF_RANGE.
     */
    toTime?: Timestamp;
}
export interface RewindSinkResponse {
    sink?: Sink;
}
export interface RetrySinkDeadLettersRequest {
    namespace?: string;
    sinkId?: string;
    /**
     * If true, all dead letters of the sink are selected. Otherwise, set at least one of the fields
     * below, which select the dead letters that match all of them. A request selects at most 1,000,
     * the oldest changes first.
     */
    all?: boolean;
    changeIds?: number[];
    ofProcessId?: string;
    /** A part of the error, in upper or lower case, such as HTTP 413. */
    error?: string;
    /** dead letters that failed at or after this time */
    sinceTime?: Timestamp;
    /** dead letters that failed before this time */
    untilTime?: Timestamp;
    /** only return the selected dead letters */
    dryRun?: boolean;
}
export interface RetrySinkDeadLettersResponse {
    /**
     * The selected dead letters, by change_id. Those with a retry_time are delivered again. The
     * change of the others was deleted, or dry_run was set.
     */
    deadLetters?: SinkDeadLetter[];
    /** while it is PAUSED, BROKEN or DISABLED, the dead letters wait */
    sink?: Sink;
}
export interface DeleteSinkRequest {
    namespace?: string;
    sinkId?: string;
}
export interface DeleteSinkResponse {
}
export interface WatchChangesRequest {
    namespace?: string;
    /**
     * The cursor of a previous response. The watch continues after its changes. It fails with
     * OUT_OF_RANGE if changes after the cursor were deleted, or after a failover or a restore of the
     * database. oldest_cursor in the detail of the error is then the oldest cursor that works.
     * Default: from_time, or from now on.
     */
    cursor?: string;
    /**
     * Only without a cursor. The watch begins with the changes that were recorded at or after this
     * time. 1970-01-01 means the oldest change.
     */
    fromTime?: Timestamp;
    /** Only changes of these kinds. Default: all kinds that the namespace records. */
    kinds?: ChangeKind[];
    /** only of this process */
    processId?: string;
    /** End the stream after the changes that were recorded when it began. */
    stop?: boolean;
}
export interface WatchChangesResponse {
    /**
     * At most 500 changes and about 256 KiB. Empty in the first response of a watch from now on, and
     * while no change matches.
     */
    changes?: Change[];
    /** A watch from this cursor continues after these changes. Store it when they are processed. */
    cursor?: string;
}
/** Change is something that has happened in a namespace. */
export interface Change {
    /**
     * The changes of a process have ascending numbers. The number of a change never differs between
     * deliveries.
     */
    changeId?: number;
    kind?: ChangeKind;
    /** What happened, in lower case, such as created, failed or stored: see docs/changes.md. */
    type?: string;
    namespace?: string;
    /** of the process, the job, the run (~flow/ID) or the cron (~cron/ID) */
    processId?: string;
    time?: Timestamp;
    /** of an event */
    eventId?: number;
    fromStatus?: string;
    toStatus?: string;
    /** such as the message of a failure */
    reason?: string;
    metadata?: JsonObject;
    /** of an event, if the namespace records payloads */
    payload?: Payload;
    /** of a job, step, run or fire */
    details?: JsonObject;
}
/** JobOptions are the options of a job. */
export interface JobOptions {
    /** jobs with a smaller number run first; default: 0 */
    priority?: number;
    /**
     * Retries after the first attempt. A timeout is a failed attempt. A Release is not. For a lost
     * lease, see max_takeovers.
     */
    maxRetry?: number;
    /** default: exponential from 1 s, factor 2, at most 1 h, jitter 10 % */
    backoff?: Backoff;
    /** The time limit of one attempt. Default: 30 s. */
    timeout?: Duration;
    /** if false, the result is dropped when the job ends */
    keepResult?: boolean;
    /** How long a result is kept until it is fetched. Default: 1 h. */
    resultTtl?: Duration;
    runTime?: Timestamp;
    unique?: Unique;
    tags?: string[];
    workers?: WorkerGroup;
    metadata?: JsonObject;
    /** Default: 30 s. */
    cancelGrace?: Duration;
    /**
     * A worker without a heartbeat for this long loses the lease. Default: the lease_duration of the
     * poll.
     */
    leaseDuration?: Duration;
    /**
     * How often the worker sends heartbeats: more than 0, at most half of lease_duration.
     * Default: a third of the lease.
     */
    heartbeatInterval?: Duration;
    /**
     * How many times another worker gets the job after a lost lease, without using up a retry. After
     * that, a lost lease is a failed attempt. Default: 3, or 0 in a namespace with
     * ZOMBIE_POLICY_ERROR.
     */
    maxTakeovers?: number;
    /**
     * The first attempt must begin within this time after the run time: more than 0, at most 100
     * years. Otherwise the job is FAILED with the reason start_deadline, and no attempt begins.
     * Retries have no such limit. It cannot be combined with workers. Default: no limit.
     */
    startDeadline?: Duration;
}
export interface Backoff {
    initial?: Duration;
    factor?: number;
    max?: Duration;
    /** A random part of the interval, 0 to 1. */
    jitter?: number;
    /**
     * One interval for each retry, in place of the fields above. The last interval also applies to
     * later retries.
     */
    steps?: Duration[];
}
/**
 * Unique allows at most one unfinished job with this key. A second Enqueue returns the first job
 * and enqueued = false, until ttl has passed after the end of the first job.
 */
export interface Unique {
    /** default: a hash of name and args */
    key?: string;
    ttl?: Duration;
    /** Until when the first job prevents a second one. Default: ACTIVE. */
    scope?: UniqueScope;
    /**
     * If true and the first job waits, even for a retry, a second Enqueue replaces its args and its
     * delay or options.run_time. Use it with the scope WAITING, which also keeps a job that is
     * enqueued while the first one runs. It needs key, and is allowed only in Enqueue, not in
     * EnqueueBatch or in a cron.
     */
    replace?: boolean;
}
/**
 * WorkerGroup describes a job that several workers run in parallel, each at most once (a broadcast
 * or a quorum). Each run is a member process of the job ("~job/~/ID/N") with its own lease.
 */
export interface WorkerGroup {
    /** How many workers must succeed, and how many run in parallel at most. Default: 1. */
    count?: number;
    /** Only these workers. Default: any. */
    workerIds?: string[];
    /** the job fails if more workers fail */
    maxFailures?: number;
}
/** WaitAction waits until a client calls CompleteStep. Until then, the run is WAITING_WORKER. */
export interface WaitAction {
    kind?: WaitActionKind;
    /** template */
    title?: string;
    /**
     * Who may complete or report a HUMAN wait, if the engine authenticates clients. Each item is a
     * template for user:ISSUER#NAME, key:ID, cert:URI, group:NAME, or the name of a group. A client
     * with process.operate may also do this. If empty, anyone may.
     */
    assignees?: string[];
    /** JSON Schema of the result; the console shows a form */
    resultSchema?: JsonObject;
    /** The time limit of the wait. 0 means no limit. */
    due?: Duration;
    dueAction?: WaitActionDueAction;
    dueResult?: Json;
}
export interface ProcessRequest {
    type?: TaskType;
    args?: Payload;
    /** with the history in the range of the task */
    process?: Process;
    taskId?: number;
    attempt?: number;
    /**
     * A number that increases with every attempt on this process. A processor can store it with its
     * own writes to reject late attempts.
     */
    fencingToken?: number;
    idempotencyKey?: string;
    context?: Payload;
    deadline?: Timestamp;
    timerName?: string;
    cancelReason?: string;
    /** when the task was due */
    scheduledTime?: Timestamp;
    /** only for jobs; args then contains the args of the job as JSON */
    jobName?: string;
    jobArgs?: Json;
    /** only for a NOTIFY that reports the end of a child */
    child?: ChildEnd;
    /**
     * The lease_token for WorkerService.Checkpoint, if the namespace has connect.checkpoints and the
     * task is a TIMEOUT or CANCEL of a process that is not a job. It is valid until the attempt ends.
     */
    checkpointToken?: string;
    /**
     * The parked_id of the last response. The history of process is empty, because the processor has
     * the process in memory. The response must have the field continued. A worker that does not have
     * the process in memory releases the lease, and then the next lease has the history.
     */
    parkedId?: string;
}
export interface ProcessResponse {
    result?: Result;
    /**
     * Allowed for INIT, CALL, NOTIFY and REPAIR. A rejected INIT removes the process, or the job is
     * FAILED. A rejected NOTIFY is not retried. An attempt that rejects a TIMEOUT or CANCEL fails
     * with the reason bad_response.
     */
    rejection?: Rejection;
    failure?: Failure;
    /**
     * Only for pushed tasks, and required after checkpoints: last_event_id of the last
     * CheckpointResponse. The events of the result follow it.
     */
    lastEventId?: number;
    /**
     * The processor keeps the process in memory under this ID, which must be unique. If the engine
     * stores this result, it may send the next CALL, NOTIFY or TIMEOUT with this parked_id and
     * without a history. Ignored unless the outcome is a result.
     */
    parkedId?: string;
    /**
     * Required if the request has a parked_id: the processor has continued the process that it had in
     * memory. Otherwise the engine ignores the response and sends the request again, with the
     * history. This is the same attempt. Ignored for leases.
     */
    continued?: boolean;
}
export interface ChildEnd {
    namespace?: string;
    /** ~flow/RUN_ID for a run */
    processId?: string;
    /**
     * COMPLETED, CANCELLED or ERROR. UNSPECIFIED if the process was removed, or was not started. A
     * run that is FAILED or EXPIRED has the status ERROR.
     */
    status?: ProcessStatus;
    /**
     * The response of its last task. For a job, its result if it is kept, as JSON. For a run, its
     * result as JSON.
     */
    response?: Payload;
    detail?: string;
    /** the reason of the failure of a run; empty for processes and jobs */
    reason?: string;
}
/** A result is stored as a whole, in one transaction. */
export interface Result {
    events?: NewEvent[];
    /** Unchanged if absent. */
    auxState?: Payload;
    /** replaces all metadata; unchanged if absent */
    metadata?: JsonObject;
    response?: Payload;
    /** replaces the pending default timer */
    setTimer?: SetTimer;
    /** cancels the pending timers */
    unsetTimer?: UnsetTimer;
    /** removes the process now */
    remove?: Remove;
    /** sets the status COMPLETED, and cancels timers and waiting calls */
    complete?: Complete;
    /** Each entry replaces the timer of the same name. Other timers do not change. */
    namedTimers?: SetTimer[];
    unsetNamedTimers?: string[];
    /**
     * At most 100 messages to other processes. They are stored in the same transaction (table
     * messages) and delivered right after the commit, exactly once, in order per sender and target. A
     * start of a process that exists does nothing. A message to a process in SUSPENDED or ERROR
     * waits. A message to a process that is missing or has ended is dropped and counted.
     */
    commands?: Command[];
    /**
     * Begins a new history, which consists of the events of this result and of later ones. The
     * process keeps its state, metadata, timers and waiting tasks. Event numbers continue. Earlier
     * events, and tasks that have ended, are removed soon after, so aux_state must contain everything
     * that is still needed from them.
     */
    restartHistory?: boolean;
    /**
     * Only for CALL and NOTIFY tasks: the task stays open, without a response, until the result of a
     * later task of the process has a reply to it. The caller waits. The task is cancelled if the
     * process fails, ends or is removed. A process can have 100 open tasks.
     */
    deferResponse?: boolean;
    /**
     * The responses of open tasks of this process. A reply to a task that has ended does nothing. A
     * reply to this task is its response, or its rejection.
     */
    replies?: Reply[];
    /** The result of a job that was pushed. Workers use JobResult instead. */
    jobResult?: Json;
}
/** Reply ends a task whose response was deferred. */
export interface Reply {
    /** ProcessRequest.task_id of that task */
    taskId?: number;
    response?: Payload;
    /** If set, the caller gets this rejection instead of the response. The process keeps its changes. */
    rejection?: Rejection;
}
export interface NewEvent {
    payload?: Payload;
    metadata?: JsonObject;
    /** Default: now. */
    timestamp?: Timestamp;
}
export interface SetTimer {
    /** empty in Result.set_timer */
    name?: string;
    at?: Timestamp;
    /**
     * A timer with a past time, or with a zero or negative duration, is due at once. Tasks that
     * already wait run first.
     */
    after?: Duration;
    remove?: boolean;
}
export interface UnsetTimer {
}
export interface Remove {
}
export interface Complete {
}
export interface Command {
    start?: StartCommand;
    notify?: NotifyCommand;
    cancel?: CancelCommand;
    enqueue?: EnqueueCommand;
    startRun?: StartRunCommand;
}
export interface StartCommand {
    namespace?: string;
    processId?: string;
    args?: Payload;
    metadata?: JsonObject;
    startTime?: Timestamp;
    /**
     * When the child ends in any way, the parent gets one NOTIFY task with these args. If the child
     * is repaired after an ERROR and ends again, the parent is not notified again.
     */
    notifyParentArgs?: Payload;
}
export interface NotifyCommand {
    namespace?: string;
    processId?: string;
    args?: Payload;
}
/**
 * CancelCommand cancels a process, as CancelProcess does. The ID ~flow/RUN_ID cancels a run, as
 * CancelRun does. Other IDs of the engine's own processes are not allowed.
 */
export interface CancelCommand {
    namespace?: string;
    processId?: string;
    reason?: string;
}
/**
 * EnqueueCommand enqueues a job with this ID. If a process with the ID exists, nothing changes, and
 * the parent is never notified.
 */
export interface EnqueueCommand {
    namespace?: string;
    jobId?: string;
    name?: string;
    args?: Json;
    /**
     * unique must not be set, because the job_id is unique. run_time delays the job. If workers is
     * set and the processor of the namespace is not pull, the job fails with the reason no_workers.
     */
    options?: JobOptions;
    /**
     * When the job ends in any way, the parent gets one NOTIFY task with these args. Its child
     * contains the result of the job if options.keep_result is set and one worker ran the job.
     */
    notifyParentArgs?: Payload;
}
/**
 * StartRunCommand starts a run with this ID, as StartRun does. If a run with the ID exists, nothing
 * changes, and the parent is never notified. The template, the payload and the scope are checked
 * when the run starts. If they do not allow the start, the run does not exist, and the parent gets
 * its NOTIFY task: the status of the child is UNSPECIFIED, and its detail says why.
 */
export interface StartRunCommand {
    namespace?: string;
    runId?: string;
    /** The type of the template. It must be empty if wait is set. */
    type?: string;
    /** 0 means the newest when the run starts. */
    version?: number;
    scope?: string;
    scopeId?: string;
    payload?: Json;
    metadata?: JsonObject;
    /**
     * When the run ends in any way, the parent gets one NOTIFY task with these args. If the run is
     * retried and ends again, the parent is not notified again.
     */
    notifyParentArgs?: Payload;
    /**
     * If it is set, the run has no template. Its only step, "answer", is this wait, and its result is
     * the answer. The wait has at most 64 KiB. A wait that a template could not have fails the task
     * with the reason bad_response.
     */
    wait?: WaitAction;
}
export interface PollRequest {
    namespaces?: string[];
    workerId?: string;
    /**
     * Only jobs with these names. If empty, all jobs and, unless jobs_only is set, also tasks of
     * other processes.
     */
    jobNames?: string[];
    maxLeases?: number;
    /** How long to wait for tasks, at most 60 s. */
    wait?: Duration;
    /** The namespace defines the default and the bounds. */
    leaseDuration?: Duration;
    /** Only jobs, and no tasks of other processes. If job_names is empty, jobs of any name. */
    jobsOnly?: boolean;
    /**
     * The worker can continue processes that it has in memory, so the requests in its leases may have
     * a parked_id.
     */
    continuesParked?: boolean;
}
export interface PollResponse {
    leases?: Lease[];
    worker?: WorkerDirective;
}
export interface Lease {
    leaseToken?: string;
    namespace?: string;
    request?: ProcessRequest;
    /** Only if the process is a job. Its progress is the last one that earlier attempts reported. */
    job?: Job;
    expiresTime?: Timestamp;
    heartbeatInterval?: Duration;
    /**
     * When the lease was granted, by the clock of expires_time and request.deadline. A worker whose
     * clock is wrong can subtract it to get the remaining time.
     */
    leasedTime?: Timestamp;
    /**
     * The span of the attempt, in the format of the headers with the same names (W3C Trace Context).
     * Empty if the attempt is not traced.
     */
    traceparent?: string;
    tracestate?: string;
    /** The worker may call Checkpoint: the task is a TIMEOUT or CANCEL of a process that is not a job. */
    mayCheckpoint?: boolean;
}
export interface HeartbeatRequest {
    workerId?: string;
    /** At most one entry per lease. */
    beats?: LeaseBeat[];
}
export interface LeaseBeat {
    leaseToken?: string;
    /** unchanged if absent */
    progress?: Progress;
    /** The duration of the lease from now on, within the bounds of the namespace. Unchanged if absent. */
    leaseDuration?: Duration;
}
export interface Progress {
    /** 0 to 100. */
    percent?: number;
    summary?: string;
    details?: JsonObject;
}
export interface HeartbeatResponse {
    directives?: LeaseDirective[];
    worker?: WorkerDirective;
}
export interface LeaseDirective {
    leaseToken?: string;
    directive?: LeaseDirectiveDirective;
    /** Empty if the response already contains 4 MiB of reasons. */
    cancelReason?: string;
    expiresTime?: Timestamp;
    /** from now on; options may have changed */
    heartbeatInterval?: Duration;
}
export interface CheckpointRequest {
    /** The token of the lease, or the checkpoint_token of a pushed task. */
    leaseToken?: string;
    /**
     * The last event of the process that the worker knows: last_event_id of the process in the
     * ProcessRequest, or of the last CheckpointResponse. The events of the checkpoint follow it.
     */
    lastEventId?: number;
    /** The fields have the same meaning and limits as those of Result. */
    events?: NewEvent[];
    auxState?: Payload;
    metadata?: JsonObject;
}
export interface CheckpointResponse {
    /** of the process, for the next Checkpoint or the result */
    lastEventId?: number;
    /**
     * Whether the worker should send the result soon: the process is being cancelled or suspended, or
     * another of its tasks waits.
     */
    yield?: boolean;
}
export interface CompleteRequest {
    leaseToken?: string;
    response?: ProcessResponse;
    /** short form for jobs; it completes the process */
    jobResult?: JobResult;
    /** acknowledges DIRECTIVE_CANCEL */
    cancelled?: Cancelled;
    /**
     * Also leases the next tasks, in the same round trip. Its wait delays the response. If it fails,
     * no leases are returned; a Poll returns the error.
     */
    next?: PollRequest;
    /** Required after checkpoints: last_event_id of the last CheckpointResponse. */
    lastEventId?: number;
}
export interface JobResult {
    result?: Json;
}
export interface Cancelled {
    message?: string;
}
export interface CompleteResponse {
    next?: Lease[];
}
export interface CompleteBatchRequest {
    /**
     * At most one entry per lease. Each is validated separately, so an invalid one does not affect
     * the others.
     */
    answers?: LeaseAnswer[];
    /** Also leases the next tasks, in the same round trip. Its wait delays the response. */
    next?: PollRequest;
}
export interface LeaseAnswer {
    leaseToken?: string;
    response?: ProcessResponse;
    jobResult?: JobResult;
    cancelled?: Cancelled;
    /** Required after checkpoints: last_event_id of the last CheckpointResponse. */
    lastEventId?: number;
}
export interface CompleteBatchResponse {
    /** one for each answer, in the same order */
    outcomes?: AnswerOutcome[];
    /** empty if the poll failed; a Poll returns the error */
    next?: Lease[];
}
export interface AnswerOutcome {
    /** absent if the answer was stored */
    error?: AnswerError;
}
export interface AnswerError {
    message?: string;
    /** as Complete would return it */
    detail?: ErrorDetail;
}
export interface ReleaseRequest {
    workerId?: string;
    leaseTokens?: string[];
    /** How long the tasks wait before a worker can take them. Default: 0. At most 365 days. */
    delay?: Duration;
    /**
     * The worker stops. Its Polls that now wait return at once, and lease no more tasks. A worker
     * sends this before it releases its tasks, and reads the responses to its Polls, because they may
     * have leases. On other nodes, Polls end when the nodes receive a NOTIFY. A portable database
     * sends no NOTIFY.
     */
    endPolls?: boolean;
}
export interface ReleaseResponse {
}
export interface ListWorkersRequest {
    namespace?: string;
    pageSize?: number;
    pageToken?: string;
}
export interface ListWorkersResponse {
    workers?: Worker[];
    nextPageToken?: string;
}
export interface Worker {
    workerId?: string;
    /** the first 1,000 by name */
    namespaces?: string[];
    leases?: number;
    lastSeenTime?: Timestamp;
    directive?: WorkerDirective;
    /**
     * The client to which the worker_id belongs: "keys:" and the name of its keys, or the name of a
     * client without a key, such as user:ISSUER#NAME. Empty if the engine does not authenticate
     * clients.
     */
    owner?: string;
    /**
     * The IP address from which the worker last sent a request, or that of its proxy. Empty if it is
     * not known.
     */
    address?: string;
    /** The User-Agent of that request, cut to 256 bytes, such as progressor-node/0.1.0. */
    userAgent?: string;
}
export interface GetWorkerRequest {
    namespace?: string;
    workerId?: string;
    /** The maximum number of leases to return. Default: 100. */
    maxLeases?: number;
}
export interface GetWorkerResponse {
    worker?: Worker;
    /** those in the namespace, the oldest first */
    leases?: HeldLease[];
    /** the worker has more leases in the namespace */
    moreLeases?: boolean;
}
/** HeldLease is a task that a worker has leased. */
export interface HeldLease {
    /** for a member of a job for several workers, the ID of that job */
    processId?: string;
    taskId?: number;
    taskType?: TaskType;
    /** empty if the process is not a job */
    jobName?: string;
    attempt?: number;
    /**
     * The last progress that the worker reported, without details. The summary is cut to 1,000
     * characters.
     */
    progress?: Progress;
    leasedTime?: Timestamp;
    /** the last heartbeat; absent if there was none */
    heartbeatTime?: Timestamp;
    expiresTime?: Timestamp;
    /** of the attempt */
    deadline?: Timestamp;
}
export interface StopWorkerRequest {
    namespace?: string;
    workerId?: string;
    /** Default: STOP. CONTINUE revokes an earlier request. */
    directive?: WorkerDirective;
    /** Only for STOP: how long leases may still run. Default: 30 s. */
    grace?: Duration;
    reason?: string;
}
export interface StopWorkerResponse {
    worker?: Worker;
}
/** A job is a process that runs once, from its start to its end. It has a name, args and options. */
export interface Job {
    namespace?: string;
    /** its process_id */
    jobId?: string;
    name?: string;
    args?: Json;
    state?: JobState;
    options?: JobOptions;
    attempt?: number;
    /** the newest 20 of the failed attempts, oldest first */
    failures?: Failure[];
    progress?: Progress;
    result?: Json;
    /**
     * Why a job does not run: the name of a constraint, its time, a processor that is not reached, a
     * suspension, a paused job name, or that no worker runs a job for several workers now.
     */
    blockedOn?: string;
    workerId?: string;
    createdTime?: Timestamp;
    /** the job does not run before this time */
    runTime?: Timestamp;
    runningTime?: Timestamp;
    finishedTime?: Timestamp;
    cancelReason?: string;
    /** one for each worker that took the job */
    workerRuns?: WorkerRun[];
    /** when the lease of worker_id ends */
    leaseExpiresTime?: Timestamp;
    cancelRequestedTime?: Timestamp;
    /** last change of the state or the progress */
    updatedTime?: Timestamp;
    /**
     * Value of the fairness_key of the namespace when the job was enqueued. Only in responses of
     * GetJob and ListJobs.
     */
    fairnessKey?: string;
}
export interface WorkerRun {
    workerId?: string;
    /** AVAILABLE, RUNNING, RETRYABLE, SUCCEEDED, FAILED (lease_lost if it timed out) or CANCELLED. */
    state?: JobState;
    failure?: Failure;
    result?: Json;
    runningTime?: Timestamp;
    finishedTime?: Timestamp;
    /** attempts on this worker */
    attempts?: number;
}
/**
 * A template describes the steps of a kind of work. Its CEL expressions can use payload, scope,
 * scope_id, run (id, attempt, created_time), steps.ID (status, result, failure) and, in for_each,
 * item and index. Fields marked "template" may contain ${EXPRESSION}. A string that consists of one
 * ${EXPRESSION} becomes the value of the expression; inside other text, the value is inserted as
 * text. Write $${ for a literal ${.
 */
export interface Template {
    namespace?: string;
    /** 1 to 128 characters of [a-z0-9_.-], for example "demo_long_task". */
    type?: string;
    /** 1, 2, 3, …; assigned by the engine */
    version?: number;
    name?: string;
    description?: string;
    /** default: true */
    enabled?: boolean;
    /**
     * JSON Schema 2020-12. A payload that does not match it is rejected with INVALID_ARGUMENT and the
     * paths. If absent, any payload is valid.
     */
    payloadSchema?: JsonObject;
    /**
     * Whether a run may start again after one with the same dedupe key SUCCEEDED. Default: true. If
     * false, StartRun returns the run that succeeded.
     */
    repeatable?: boolean;
    concurrencyPolicy?: ScopePolicy;
    /**
     * The values that form the dedupe key of a run: "scope", "scope_id", or a path in the payload
     * ("target", "user.id"). Default: scope and scope_id. A run has no dedupe key if all values are
     * empty.
     */
    dedupeKeys?: string[];
    /**
     * The time limit of a run, from the start of its first step, including retries and waits. A run
     * that exceeds it is EXPIRED. 0 means no limit.
     */
    timeout?: Duration;
    cancelPolicy?: CancelPolicy;
    retryPolicy?: RunRetryPolicy;
    stepOrder?: StepOrder;
    /** 1 to 1,000 steps. A cycle or an unknown step in depends_on is an error that names it. */
    steps?: StepTemplate[];
    /** The result of a run, a template. Default: the result of the last step that succeeded. */
    result?: Json;
    /** whether crons may start it; default: true */
    schedulable?: boolean;
    /** of the first version */
    createdTime?: Timestamp;
    /** of this version */
    updatedTime?: Timestamp;
}
export interface CancelPolicy {
    /** default: true */
    supported?: boolean;
    mode?: CancelPolicyMode;
    /** How long cancelable steps may still run. Default: 30 s. */
    grace?: Duration;
}
/**
 * RunRetryPolicy describes attempts of a whole run, after the retries of a step are used up. The
 * next attempt begins at the steps that did not succeed. Steps that succeeded keep their results.
 */
export interface RunRetryPolicy {
    /** including the first; default: 1 */
    maxAttempts?: number;
    /** steps [30s, 120s]: 30 s before attempt 2, 120 s before later ones */
    backoff?: Backoff;
}
export interface StepTemplate {
    /** Unique in the template, 1 to 64 characters of [a-z0-9_]. */
    stepId?: string;
    name?: string;
    /**
     * The time limit of one attempt. The default is 30 s for a job, and none for a process or run.
     * When a process or run exceeds it, it is asked to end, and the step is FAILED (`timeout`). It is
     * not allowed for a delay or for a wait, which has due instead.
     */
    timeout?: Duration;
    /** default: true; if false, a cancel waits until the step ends */
    cancelable?: boolean;
    dependsOn?: string[];
    joinRule?: JoinRule;
    /**
     * A CEL expression of type bool. If it is false, the step is SKIPPED. It is evaluated when the
     * join rule is met.
     */
    condition?: string;
    forEach?: ForEach;
    /** template; default: the payload, or the item of for_each */
    input?: Json;
    job?: JobAction;
    process?: ProcessAction;
    wait?: WaitAction;
    delay?: DelayAction;
    run?: RunAction;
    /**
     * The job that undoes the step. When a run fails, expires or is cancelled, the compensations of
     * the steps that succeeded run, last step first. Their args contain the input and the result of
     * the step to undo.
     */
    compensation?: JobAction;
    /**
     * If true, a failure of the step does not fail the run. Steps that depend on it treat it as
     * SKIPPED.
     */
    ignoreFailure?: boolean;
    /** in the progress of the run; default: 1 */
    weight?: number;
}
export interface ForEach {
    /**
     * A CEL expression that returns a list of at most 10,000 items. If the list is empty, the step
     * succeeds with the result [].
     */
    items?: string;
    /** 0 means no limit */
    maxRunning?: number;
    /** If more items fail, the other items are cancelled and the step fails. */
    maxFailures?: number;
}
/**
 * JobAction enqueues a job. Workers of its namespace take it (pull), or the processor of the
 * namespace is called (push).
 */
export interface JobAction {
    /** Default: the namespace of the template. */
    namespace?: string;
    /** default: the step_id */
    name?: string;
    /**
     * Retries, backoff, priority, tags, lease, and so on. run_time, unique, keep_result and
     * workers.count above 1 are not allowed.
     */
    options?: JobOptions;
}
/** ProcessAction starts a process. The step ends when the process ends. */
export interface ProcessAction {
    /** Default: the namespace of the template. */
    namespace?: string;
    /** default: the input as JSON */
    args?: Payload;
    metadata?: JsonObject;
}
export interface DelayAction {
    duration?: Duration;
    /** A CEL expression of type timestamp. A time in the past ends the delay at once. */
    time?: string;
}
/** RunAction starts a run of another template. That run is cancelled together with this one. */
export interface RunAction {
    type?: string;
    /** 0 means the newest when the step starts */
    version?: number;
    /** template; default: the input of the step */
    payload?: Json;
}
/** One execution of a template. */
export interface Run {
    namespace?: string;
    /** its process_id */
    runId?: string;
    templateType?: string;
    templateVersion?: number;
    /** what the run is for: "user", "account", "system", … */
    scope?: string;
    scopeId?: string;
    status?: RunStatus;
    /** step_id of the step that runs or is next; the first one if there are several */
    phase?: string;
    payload?: Json;
    /**
     * percent is the weighted share of steps that have ended, plus reported progress. For a run that
     * ended without success, only steps that succeeded count. summary is the newest summary that a
     * step reported.
     */
    progress?: Progress;
    /** One for each step of the template, in the same order. See Step.values_omitted. */
    steps?: Step[];
    result?: Json;
    /** of the step that failed the run */
    failure?: Failure;
    /** 0 if no step has started; a job starts when a worker takes it */
    attempt?: number;
    maxAttempts?: number;
    /** the worker that holds the lease of phase */
    workerId?: string;
    leaseExpiresTime?: Timestamp;
    cancelRequestedTime?: Timestamp;
    cancelReason?: string;
    /** the run does not start before this time */
    runTime?: Timestamp;
    /** when its first step started, see attempt */
    runningTime?: Timestamp;
    finishedTime?: Timestamp;
    createdTime?: Timestamp;
    /** When the run or one of its steps last changed. For a step, it may be up to a minute too early. */
    updatedTime?: Timestamp;
    /**
     * Why the run is PENDING: its time, its scope (with the other run), a back-off or a paused
     * namespace.
     */
    blockedOn?: string;
    /** the cron that started the run */
    cronId?: string;
    fireTime?: Timestamp;
    /** the run whose step started this run */
    parentRunId?: string;
    repeatOfRunId?: string;
    metadata?: JsonObject;
}
export interface Step {
    stepId?: string;
    name?: string;
    /** only for an item of for_each; counts from 0 */
    index?: number;
    status?: StepStatus;
    /** the number of starts; a job starts when a worker takes it */
    attempt?: number;
    progress?: Progress;
    input?: Json;
    /** With for_each: the results of the items, in order. */
    result?: Json;
    failure?: Failure;
    /** the job, process or run of this step */
    processId?: string;
    workerId?: string;
    leaseExpiresTime?: Timestamp;
    /**
     * When the step last started. For a job, when its last attempt began; empty while it waits for a
     * worker.
     */
    runningTime?: Timestamp;
    finishedTime?: Timestamp;
    /** why the step was SKIPPED or CANCELLED, or what it waits for */
    reason?: string;
    compensationStatus?: StepStatus;
    /** with for_each; keys: pending, running, … */
    itemsByStatus?: {
        [key: string]: number;
    };
    /**
     * Only in GetRun. If true, input and result are omitted, and failure and progress are cut,
     * because the steps before this one have 8 MiB of such values. ListSteps returns them.
     */
    valuesOmitted?: boolean;
}
/**
 * StartRunTarget is the target of a cron that starts a run at each fire. The ID of the run consists
 * of the ID of the cron and the fire time. If the run is rejected for its scope, the fire is
 * SKIPPED_CONCURRENCY. Otherwise the fire gets the status of the run: SUCCESS, FAILED or CANCELLED;
 * EXPIRED becomes TIMEOUT.
 */
export interface StartRunTarget {
    type?: string;
    /** 0 means the newest when the cron fires */
    version?: number;
    scope?: string;
    scopeId?: string;
    /** A template. Its expressions can use cron_id, fire_time and attempt. */
    payloadTemplate?: Json;
    metadata?: JsonObject;
}
/** OpenWait is a wait that has not ended. */
export interface OpenWait {
    namespace?: string;
    runId?: string;
    stepId?: string;
    index?: number;
    kind?: WaitActionKind;
    title?: string;
    assignees?: string[];
    resultSchema?: JsonObject;
    input?: Json;
    /** The token of this attempt. CompleteStep with an older one fails with FAILED_PRECONDITION. */
    token?: string;
    createdTime?: Timestamp;
    dueTime?: Timestamp;
    cancelRequested?: boolean;
    /**
     * Whether the client of this request may complete the wait (an EXTERNAL one with the token): it
     * has wait.answer, and is an assignee or has process.operate.
     */
    answerable?: boolean;
    /** who works on it, as reported by ReportStep; empty if unknown */
    workerId?: string;
}
export interface JobEvent {
    eventId?: number;
    namespace?: string;
    /** the job_id or run_id */
    jobId?: string;
    /** a step of the run, or the step that the job belongs to */
    stepId?: string;
    index?: number;
    /**
     * status_changed, step_queued, step_status_changed, progress, lease_lost, cancel_requested,
     * cancel_acknowledged, cancel_grace_expired, attempt_failed, timeout, retried, repeated,
     * skipped_by_hand, …
     */
    type?: string;
    /** a status in lower case, as in the tables */
    from?: string;
    to?: string;
    message?: string;
    metadata?: JsonObject;
    attempt?: number;
    workerId?: string;
    /** who made the request; empty if it was the engine */
    actor?: string;
    createdTime?: Timestamp;
}
export interface PutTemplateRequest {
    /** version is ignored */
    template?: Template;
    /**
     * The newest version that the caller knows. If it is not the newest, the request fails with
     * ABORTED.
     */
    expectedVersion?: number;
    validateOnly?: boolean;
}
export interface PutTemplateResponse {
    template?: Template;
    /** false if it equals the newest version */
    created?: boolean;
}
export interface GetTemplateRequest {
    namespace?: string;
    type?: string;
    /** 0 means the newest */
    version?: number;
}
export interface GetTemplateResponse {
    template?: Template;
    /** the newest 1,000, in ascending order */
    versions?: number[];
}
export interface ListTemplatesRequest {
    namespace?: string;
    pageSize?: number;
    pageToken?: string;
}
export interface ListTemplatesResponse {
    /** the newest version of each */
    templates?: Template[];
    nextPageToken?: string;
}
export interface EnableTemplateRequest {
    namespace?: string;
    type?: string;
}
export interface EnableTemplateResponse {
    template?: Template;
}
export interface DisableTemplateRequest {
    namespace?: string;
    type?: string;
}
export interface DisableTemplateResponse {
    template?: Template;
}
export interface DeleteTemplateRequest {
    namespace?: string;
    type?: string;
}
export interface DeleteTemplateResponse {
}
export interface StartRunRequest {
    namespace?: string;
    /** default: chosen by the engine */
    runId?: string;
    type?: string;
    /** 0 means the newest */
    version?: number;
    scope?: string;
    scopeId?: string;
    payload?: Json;
    /** The run does not start before this time. */
    runTime?: Timestamp;
    idempotencyKey?: string;
    metadata?: JsonObject;
    /** checks the payload and the scope, but stores nothing */
    validateOnly?: boolean;
}
export interface StartRunResponse {
    run?: Run;
    /** false if run already existed, or with validate_only */
    started?: boolean;
}
export interface GetRunRequest {
    namespace?: string;
    runId?: string;
    /** How long to wait for the end of the run, at most 10 minutes. */
    awaitEnd?: Duration;
}
export interface GetRunResponse {
    run?: Run;
}
export interface ListRunsRequest {
    namespace?: string;
    /**
     * An AIP-160 filter on status, template_type, scope, scope_id, phase, cron_id, created_time,
     * reason, fingerprint, payload.* and metadata.*.
     */
    filter?: string;
    /** "created_time desc" (default) or "updated_time". */
    orderBy?: string;
    pageSize?: number;
    pageToken?: string;
}
export interface ListRunsResponse {
    /** without steps */
    runs?: Run[];
    nextPageToken?: string;
}
export interface ListStepsRequest {
    namespace?: string;
    runId?: string;
    /** If set, only this step and its items. */
    stepId?: string;
    pageSize?: number;
    pageToken?: string;
}
export interface ListStepsResponse {
    steps?: Step[];
    nextPageToken?: string;
}
export interface CancelRunRequest {
    namespace?: string;
    runId?: string;
    reason?: string;
    /**
     * If true, the run ends now, regardless of its status, even if the template does not support
     * cancelling. Open steps are asked to end, but the run does not wait for them. No more steps are
     * compensated.
     */
    force?: boolean;
}
export interface CancelRunResponse {
    run?: Run;
}
export interface RetryRunRequest {
    namespace?: string;
    runId?: string;
    /**
     * Continue with the newest version of the template. This fails if that version lacks a step that
     * succeeded.
     */
    newestVersion?: boolean;
    /**
     * Inputs that replace those of steps that run again, also in later attempts and retries, and for
     * the compensation. All inputs of a run, including those of earlier retries, have at most 256 KiB
     * of JSON. Steps with for_each, waits, delays, and processes with args accept none.
     */
    inputs?: StepInput[];
}
export interface StepInput {
    stepId?: string;
    input?: Json;
}
export interface RetryRunResponse {
    run?: Run;
}
export interface RemoveRunRequest {
    namespace?: string;
    runId?: string;
}
export interface RemoveRunResponse {
}
export interface RepeatRunRequest {
    namespace?: string;
    runId?: string;
    idempotencyKey?: string;
    /** if absent, the payload of the old run */
    payload?: Json;
}
export interface RepeatRunResponse {
    run?: Run;
}
export interface ListOpenWaitsRequest {
    /** If empty, all namespaces, one after the other by name. */
    namespace?: string;
    /** An AIP-160 filter on kind, assignees, template_type, due_time and run_id. */
    filter?: string;
    pageSize?: number;
    pageToken?: string;
    /** only waits that the client may answer */
    answerable?: boolean;
}
export interface ListOpenWaitsResponse {
    /** ordered by due time, in each namespace */
    waits?: OpenWait[];
    nextPageToken?: string;
}
export interface CompleteStepRequest {
    namespace?: string;
    runId?: string;
    stepId?: string;
    index?: number;
    /** required for EXTERNAL */
    token?: string;
    /**
     * Who completed the step. If empty, it is the client, provided that the engine authenticates
     * clients.
     */
    workerId?: string;
    result?: Json;
    failure?: Failure;
    /** acknowledges a cancel request */
    cancelled?: Cancelled;
}
export interface CompleteStepResponse {
    run?: Run;
}
export interface ReportStepRequest {
    namespace?: string;
    runId?: string;
    stepId?: string;
    index?: number;
    token?: string;
    /** unchanged if absent */
    progress?: Progress;
    /** The duration from now until the wait is due. Unchanged if absent. */
    due?: Duration;
    /**
     * Who works on the wait. Lists show it to others, who can still complete the wait. Unchanged if
     * absent. Empty clears it.
     */
    workerId?: string;
}
export interface ReportStepResponse {
    /** lease_token is the token of the wait */
    directive?: LeaseDirective;
}
export interface SkipStepRequest {
    namespace?: string;
    runId?: string;
    stepId?: string;
    index?: number;
    result?: Json;
    reason?: string;
}
export interface SkipStepResponse {
    run?: Run;
}
export interface ListJobEventsRequest {
    namespace?: string;
    /**
     * An AIP-160 filter on job_id, run_id, step_id, type, from, to, actor, worker_id and
     * created_time. run_id matches the events of a run and of the jobs of its steps.
     */
    filter?: string;
    pageSize?: number;
    pageToken?: string;
}
export interface ListJobEventsResponse {
    /** newest first */
    events?: JobEvent[];
    nextPageToken?: string;
}
export interface WatchJobEventsRequest {
    namespace?: string;
    filter?: string;
    /** default: from now on */
    cursor?: string;
}
export interface WatchJobEventsResponse {
    /** Absent in the first response of a watch without a cursor, which only returns the cursor. */
    event?: JobEvent;
    /** continues after this event */
    cursor?: string;
}
export interface Cron {
    namespace?: string;
    cronId?: string;
    spec?: CronSpec;
    policy?: CronPolicy;
    target?: CronTarget;
    paused?: boolean;
    pauseNote?: string;
    createdTime?: Timestamp;
    updatedTime?: Timestamp;
    lastFireTime?: Timestamp;
    /** the next ten */
    nextFireTimes?: Timestamp[];
    /** keys: fired, queued, skipped_overlap, … */
    firesByDecision?: {
        [key: string]: number;
    };
    runningProcessIds?: string[];
    metadata?: JsonObject;
    /** An update with an old etag fails with ABORTED. */
    etag?: string;
    /** Fire times that have passed since the cron was paused. 1000 means 1000 or more. */
    waitingFires?: number;
    /** incomplete ones, oldest first; set by the engine */
    backfills?: Backfill[];
    /** The number of consecutive failed runs, set by the engine. If it is not 0, the cron is failing. */
    failures?: number;
}
/** Backfill describes a backfill with fire times that have not been started or decided yet. */
export interface Backfill {
    /** the backfill continues from this time */
    fromTime?: Timestamp;
    toTime?: Timestamp;
    overlapAction?: OverlapAction;
    /** 0 with overlap_action */
    maxConcurrency?: number;
}
export interface CronSpec {
    /**
     * Five fields, or six with seconds first; @hourly and similar; @every 90s (counted from
     * start_time, or else from created_time); L, L-3, LW, 15W, 5L, FRI#2. Days of the week are as in
     * Unix: 0 and 7 are Sunday. If day of month and day of week are both restricted, a day matches if
     * one of them matches. With several expressions, the cron fires at the times of all of them.
     */
    expressions?: string[];
    /** IANA name; default: UTC */
    timezone?: string;
    startTime?: Timestamp;
    endTime?: Timestamp;
    /** The maximum delay of a fire. The delay is always the same for the same cron and fire time. */
    jitter?: Duration;
    excludeExpressions?: string[];
    daylightSaving?: DaylightSaving;
    /** number of runs; 0 means no limit */
    maxFires?: number;
}
/**
 * DaylightSaving applies to expressions with fixed hours. Expressions with a wildcard or a step in
 * the hour field, and @every, follow elapsed time: they fire in every hour that passes.
 */
export interface DaylightSaving {
    gap?: DaylightSavingGap;
    overlap?: DaylightSavingOverlap;
}
export interface CronPolicy {
    overlapAction?: OverlapAction;
    failureAction?: FailureAction;
    concurrencyPolicy?: ConcurrencyPolicy;
    /** How many runs of this cron may run at the same time. 0 means 1. */
    maxConcurrency?: number;
    /** With QUEUE, how many fires may wait. Further ones are DROPPED. 0 means 1000. */
    queueLimit?: number;
    misfirePolicy?: MisfirePolicy;
    /** with CATCH_UP_LIMITED */
    catchupLimit?: number;
    /** Fires older than this are MISSED. 0 means no limit. */
    catchupWindow?: Duration;
    /**
     * The time limit of one run. 0 means 10 s for HTTP targets, and the limit of the target itself
     * for all others.
     */
    timeout?: Duration;
    /** with RETRY and BACKOFF */
    retryBackoff?: Backoff;
    /** With RETRY and BACKOFF. 0 means no limit. */
    maxAttempts?: number;
    /** The cron is paused after this many consecutive failed runs. 0 means never. */
    pauseAfterFailures?: number;
    /** With SKIP, a fire that is at most this late still runs. Default: 5 s. */
    misfireThreshold?: Duration;
    /** With PARALLEL, how many runs may overlap. Further fires are SKIPPED_OVERLAP. 0 means 3,000. */
    maxOverlap?: number;
}
export interface CronTarget {
    startProcess?: StartProcessTarget;
    enqueueJob?: EnqueueJobTarget;
    notifyProcess?: NotifyProcessTarget;
    http?: HttpTarget;
    startRun?: StartRunTarget;
}
/**
 * StartProcessTarget starts a new process for each run. Its ID consists of the ID of the cron and
 * the fire time. A run that exceeds policy.timeout ends as TIMEOUT, and its process is cancelled.
 */
export interface StartProcessTarget {
    runEnd?: StartProcessTargetRunEnd;
    /** Default: the namespace of the cron. */
    namespace?: string;
    args?: Payload;
    metadata?: JsonObject;
}
export interface EnqueueJobTarget {
    namespace?: string;
    name?: string;
    args?: Json;
    options?: JobOptions;
}
/** NotifyProcessTarget notifies an existing process. The run ends when the NOTIFY task ends. */
export interface NotifyProcessTarget {
    namespace?: string;
    processId?: string;
    args?: Payload;
}
export interface HttpTarget {
    url?: string;
    /** default: POST */
    method?: string;
    /**
     * Names have 1 to 256 bytes and values at most 8 KiB. ${secret:NAME} in a value is replaced by a
     * secret (progressor secret put). Values are stored encrypted. Responses have REDACTED in place
     * of a value that may be secret. A put with REDACTED keeps the stored value if the requests go to
     * the same hosts.
     */
    headers?: {
        [key: string]: string;
    };
    body?: Payload;
    /** Default: 200 to 299. */
    successCodes?: number[];
    /**
     * Names of secrets (progressor secret put) with keys of Standard Webhooks: whsec_ followed by 24
     * to 64 bytes in base64, or whsk_ followed by an Ed25519 private key. If any are set, each
     * request has the headers webhook-id, webhook-timestamp and webhook-signature, with a signature
     * of each key. With two keys, receivers accept the requests while one of them is replaced.
     */
    signingSecrets?: string[];
    /** the URL must be https */
    tls?: TargetTls;
}
export interface Fire {
    fireId?: string;
    /** when it was due, without jitter */
    fireTime?: Timestamp;
    decidedTime?: Timestamp;
    decision?: Decision;
    reason?: string;
    attempt?: number;
    status?: FireStatus;
    /** ID of the process of the run */
    processId?: string;
    startedTime?: Timestamp;
    endedTime?: Timestamp;
    /** how the run ended, such as the message of its failure */
    detail?: string;
    /** triggered, backfilled or run again */
    manual?: boolean;
    /** number of fire times in this row; more than 1 only for many MISSED ones */
    count?: number;
}
export interface CreateCronRequest {
    cron?: Cron;
}
export interface CreateCronResponse {
    cron?: Cron;
}
export interface UpdateCronRequest {
    cron?: Cron;
}
export interface UpdateCronResponse {
    cron?: Cron;
}
export interface GetCronRequest {
    namespace?: string;
    cronId?: string;
}
export interface GetCronResponse {
    cron?: Cron;
}
export interface ListCronsRequest {
    namespace?: string;
    filter?: string;
    pageSize?: number;
    pageToken?: string;
}
export interface ListCronsResponse {
    crons?: Cron[];
    nextPageToken?: string;
}
export interface ListNextCronsRequest {
    /** If empty, all namespaces that are not paused. */
    namespace?: string;
    /** default: 10 */
    pageSize?: number;
}
export interface ListNextCronsResponse {
    /**
     * The soonest first, including jitter. Paused crons, and crons without further fire times, are
     * not listed. A page may end early if its crons are large.
     */
    crons?: Cron[];
}
export interface DeleteCronRequest {
    namespace?: string;
    cronId?: string;
}
export interface DeleteCronResponse {
}
export interface PauseCronRequest {
    namespace?: string;
    cronId?: string;
    note?: string;
}
export interface PauseCronResponse {
    cron?: Cron;
}
export interface ResumeCronRequest {
    namespace?: string;
    cronId?: string;
    note?: string;
    /**
     * If true, the misfire policy decides which fire times of the pause run. By default, none of them
     * run, and all are MISSED ("paused").
     */
    catchUp?: boolean;
}
export interface ResumeCronResponse {
    cron?: Cron;
}
export interface TriggerCronRequest {
    namespace?: string;
    cronId?: string;
    /** Default: the overlap_action of the cron. */
    overlapAction?: OverlapAction;
}
export interface TriggerCronResponse {
    fire?: Fire;
}
export interface CancelFireRequest {
    namespace?: string;
    cronId?: string;
    /** Fire.fire_time. A precision of milliseconds suffices if it identifies the fire. */
    fireTime?: Timestamp;
    /** for the audit log */
    reason?: string;
}
export interface CancelFireResponse {
    /** a run that was asked to end is RUNNING until it has ended */
    fire?: Fire;
}
export interface RerunFireRequest {
    namespace?: string;
    cronId?: string;
    /** Fire.fire_time. A precision of milliseconds suffices if it identifies the fire. */
    fireTime?: Timestamp;
    /** for the audit log */
    reason?: string;
}
export interface RerunFireResponse {
    fire?: Fire;
}
export interface BackfillCronRequest {
    namespace?: string;
    cronId?: string;
    /** Inclusive. */
    fromTime?: Timestamp;
    /** Exclusive. */
    toTime?: Timestamp;
    /** If set, each fire time is decided at once. Default: fires run in order, see max_concurrency. */
    overlapAction?: OverlapAction;
    /** How many runs of the backfill may run at the same time. 0 means 1. Not with overlap_action. */
    maxConcurrency?: number;
}
export interface BackfillCronResponse {
    /** number of fire times, without those that were already recorded */
    fires?: number;
}
export interface StopBackfillsRequest {
    namespace?: string;
    cronId?: string;
    /** for the audit log */
    reason?: string;
}
export interface StopBackfillsResponse {
    /** number of backfills that were ended */
    backfills?: number;
}
export interface PreviewCronRequest {
    cron?: CronRef;
    spec?: CronSpec;
    fromTime?: Timestamp;
    toTime?: Timestamp;
    limit?: number;
}
export interface CronRef {
    namespace?: string;
    cronId?: string;
}
export interface PreviewCronResponse {
    fireTimes?: Timestamp[];
    /** the spec as a sentence */
    words?: string;
}
export interface ListFiresRequest {
    namespace?: string;
    cronId?: string;
    pageSize?: number;
    pageToken?: string;
}
export interface ListFiresResponse {
    /** newest first */
    fires?: Fire[];
    nextPageToken?: string;
}
export interface EnqueueRequest {
    namespace?: string;
    /** default: chosen by the engine */
    jobId?: string;
    name?: string;
    args?: Json;
    options?: JobOptions;
    idempotencyKey?: string;
    /**
     * The job does not run before this time has passed, by the clock of the database. If
     * options.run_time is also set, the request fails with INVALID_ARGUMENT.
     */
    delay?: Duration;
}
export interface EnqueueResponse {
    job?: Job;
    /** false if a job with the same unique or idempotency key existed */
    enqueued?: boolean;
    /**
     * If true, the job has ended and was removed by retention or RemoveProcess. job contains only its
     * IDs.
     */
    removed?: boolean;
    /** true if job got the args and the time of this request, see Unique.replace */
    replaced?: boolean;
}
export interface EnqueueBatchRequest {
    jobs?: EnqueueRequest[];
}
export interface EnqueueBatchResponse {
    jobs?: EnqueueResponse[];
}
export interface GetJobRequest {
    namespace?: string;
    jobId?: string;
    /** How long to wait for the end of the job, at most 10 minutes. */
    awaitEnd?: Duration;
}
export interface GetJobResponse {
    job?: Job;
}
export interface ListJobsRequest {
    namespace?: string;
    /**
     * An AIP-160 filter on job_id, state, name, priority, tags, worker_id, created_time, reason,
     * fingerprint, metadata.* and args.*.
     */
    filter?: string;
    orderBy?: string;
    pageSize?: number;
    pageToken?: string;
}
export interface ListJobsResponse {
    jobs?: Job[];
    nextPageToken?: string;
}
export interface FetchResultRequest {
    namespace?: string;
    jobId?: string;
    /** How long to wait for the end of the job, at most 10 minutes. */
    awaitEnd?: Duration;
}
export interface FetchResultResponse {
    state?: JobState;
    result?: Json;
    /** of the last attempt, if state is FAILED */
    failure?: Failure;
    finishedTime?: Timestamp;
    /** the result was fetched before, has expired or was never kept */
    dropped?: boolean;
}
export interface UpdateJobRequest {
    namespace?: string;
    jobId?: string;
    /** required unless update_mask contains only args */
    options?: JobOptions;
    /**
     * Fields of options: priority, max_retry, backoff, timeout, keep_result, result_ttl, run_time,
     * tags, workers, metadata, cancel_grace, lease_duration, heartbeat_interval, start_deadline; and
     * args, for the field below. An empty mask or another field fails with INVALID_ARGUMENT.
     */
    updateMask?: string;
    /**
     * The new args, if update_mask contains "args". They can change only while the job waits. The
     * args of the job of a step, and of a unique job whose key is computed from them, cannot change.
     */
    args?: Json;
}
export interface UpdateJobResponse {
    job?: Job;
}
export interface CancelJobRequest {
    namespace?: string;
    jobId?: string;
    reason?: string;
}
export interface CancelJobResponse {
    job?: Job;
}
export interface RetryJobRequest {
    namespace?: string;
    jobId?: string;
    /**
     * If true, a SUCCEEDED job also runs again. In a job for several workers, the workers that
     * succeeded also run it again.
     */
    clearSuccesses?: boolean;
}
export interface RetryJobResponse {
    job?: Job;
}
export interface RemoveJobRequest {
    namespace?: string;
    jobId?: string;
}
export interface RemoveJobResponse {
}
export interface GetQueueStatsRequest {
    namespace?: string;
}
export interface GetQueueStatsResponse {
    /** keys: scheduled, available, running, … */
    countByState?: {
        [key: string]: number;
    };
    oldestAvailableAge?: Duration;
    /** the 1,000 names with the most unfinished jobs */
    names?: JobNameStats[];
}
export interface PauseJobsRequest {
    namespace?: string;
    /** Name of the jobs. There need not be a job with this name. */
    name?: string;
    reason?: string;
}
export interface PauseJobsResponse {
    paused?: PausedJobs;
}
/** PausedJobs is a job name that is paused. */
export interface PausedJobs {
    namespace?: string;
    name?: string;
    /** at most 1 KiB */
    reason?: string;
    /** who paused it last; empty if unknown */
    actor?: string;
    /** when it was paused */
    pausedTime?: Timestamp;
}
export interface ResumeJobsRequest {
    namespace?: string;
    name?: string;
}
export interface ResumeJobsResponse {
    wasPaused?: boolean;
}
export interface ListPausedJobsRequest {
    namespace?: string;
}
export interface ListPausedJobsResponse {
    /** at most 100, by name */
    paused?: PausedJobs[];
}
export interface JobNameStats {
    name?: string;
    countByState?: {
        [key: string]: number;
    };
}
/**
 * A constraint limits the jobs that it matches. A job waits until all constraints that match it
 * allow it to run.
 */
export interface Constraint {
    namespace?: string;
    name?: string;
    /**
     * A CEL expression on job.name, job.args, job.priority, job.tags and job.metadata, for example
     * job.name == "send_mail" && job.args.region == "eu"
     */
    match?: string;
    /**
     * A CEL expression. Each of its values has its own limit. If empty, all matching jobs share one
     * limit.
     */
    key?: string;
    /** 0 means no limit */
    maxRunning?: number;
    rate?: RateLimit;
}
export interface RateLimit {
    count?: number;
    per?: Duration;
    /** default: count */
    burst?: number;
}
export interface PutConstraintRequest {
    constraint?: Constraint;
}
export interface PutConstraintResponse {
    constraint?: Constraint;
}
export interface ListConstraintsRequest {
    namespace?: string;
}
export interface ListConstraintsResponse {
    constraints?: ConstraintState[];
}
export interface ConstraintState {
    constraint?: Constraint;
    /** jobs that were admitted and run */
    running?: number;
    /** jobs that wait to be admitted */
    waiting?: number;
    /** When the rate allows the next job. Absent if a job can start now. */
    nextFreeTime?: Timestamp;
    /** jobs that were admitted but not yet taken by a worker */
    held?: number;
}
export interface DeleteConstraintRequest {
    namespace?: string;
    name?: string;
}
export interface DeleteConstraintResponse {
}
/**
 * The fields whose JSON is converted: bytes are base64 and 64-bit integers are strings there. Other
 * values name the message of the field. Braces mark a map.
 */
export declare const conversions: {
    [message: string]: {
        [field: string]: string;
    };
};
