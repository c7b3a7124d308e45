// SPDX-License-Identifier: MIT OR Apache-2.0

//! A queue pair with a completion queue of its own, and waiting for completions.

use std::io;
use std::time::{Duration, Instant};

use iwarp::verbs::RegisterError;
use iwarp::{
    Access, CompletionChannel, CompletionQueue, Device, MemoryRegion, Payload, PostError,
    ProtectionDomain, QueuePair, QueuePairAttributes, RecvRequest, SendOp, SendRequest, Sge, WcOp,
    WcStatus, WorkCompletion,
};
use thiserror::Error;

use crate::demo::explained::journal::What;
use crate::demo::explained::{Deed, Journal};

/// The time that a waiter polls before it sleeps.
const SPIN: Duration = Duration::from_millis(1);

/// Number of work requests whose success no caller waits for.
pub(crate) const QUIET: u64 = 0;

/// One end of a connection, with everything it completes on.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) pd: ProtectionDomain,
    pub(crate) qp: QueuePair,
    cq: CompletionQueue,
    channel: CompletionChannel,
    /// Completions that came while another was waited for.
    early: Vec<WorkCompletion>,
    /// The journal of its calls and completions, if one is kept.
    journal: Option<Journal>,
}

/// The reason why an awaited completion did not come.
#[derive(Debug, Error)]
pub(crate) enum WaitError {
    /// The connection is over.
    #[error("the connection ended")]
    Ended,
    /// The work request failed.
    #[error("{0:?} failed: {1}")]
    Failed(WcOp, WcStatus),
    /// It took too long.
    #[error("no completion within {0:?}")]
    TimedOut(Duration),
    /// The system refused to wait.
    #[error("cannot wait for completions")]
    System(#[from] io::Error),
}

impl End {
    /// Makes a queue pair that is ready to be connected.
    pub(crate) fn new(device: &Device) -> io::Result<Self> {
        Self::noted(device, None)
    }

    /// Makes one whose calls and completions are noted.
    pub(crate) fn noted(device: &Device, journal: Option<Journal>) -> io::Result<Self> {
        let channel = device.create_comp_channel()?;
        let cq = device.create_cq(512, Some(&channel))?;
        let pd = device.alloc_pd();
        let qp = pd.create_qp(&QueuePairAttributes::new(&cq, &cq))?;
        let end = Self { pd, qp, cq, channel, early: Vec::new(), journal };
        end.note(|| Deed::new("create_cq", "a completion queue", "ibv_create_cq"));
        end.note(|| Deed::new("create_qp", "a queue pair", "ibv_create_qp"));
        Ok(end)
    }

    /// Registers memory that the library allocates.
    pub(crate) fn allocate(
        &self,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        let region = self.pd.allocate(len, access)?;
        self.note(|| Deed::registered(&region, access));
        Ok(region)
    }

    /// Notes a call, if there is a journal.
    pub(crate) fn note(&self, deed: impl FnOnce() -> Deed) {
        if let Some(journal) = &self.journal {
            journal.note(What::Deed(deed()));
        }
    }

    /// Posts a work request with bytes of registered memory.
    pub(crate) fn post(&self, wr_id: u64, op: SendOp, sge: Sge) -> Result<(), PostError> {
        self.post_payload(wr_id, op, Payload::Sges(&[sge]))
    }

    /// Posts a work request with bytes that are taken at once.
    pub(crate) fn post_inline(&self, wr_id: u64, op: SendOp, data: &[u8]) -> Result<(), PostError> {
        self.post_payload(wr_id, op, Payload::Inline(data))
    }

    /// Posts a work request without bytes.
    pub(crate) fn post_bare(&self, wr_id: u64, op: SendOp) -> Result<(), PostError> {
        self.post_payload(wr_id, op, Payload::Sges(&[]))
    }

    fn post_payload(&self, wr_id: u64, op: SendOp, payload: Payload<'_>) -> Result<(), PostError> {
        self.note(|| Deed::post_send(wr_id, &op, &payload));
        self.qp.post_send(&SendRequest::new(wr_id, op, payload).signaled())
    }

    /// Posts a receive.
    pub(crate) fn post_recv(&self, wr_id: u64, sge: Sge) -> Result<(), PostError> {
        self.note(|| Deed::post_recv(wr_id, &sge));
        self.qp.post_recv(&RecvRequest::new(wr_id, &[sge]))
    }

    /// Waits for the completion of a work request, however long it takes without a `timeout`.
    /// Polls for a moment, then sleeps.
    pub(crate) fn wait(
        &mut self,
        wr_id: u64,
        timeout: Option<Duration>,
    ) -> Result<WorkCompletion, WaitError> {
        if let Some(place) = self.early.iter().position(|wc| wc.wr_id == wr_id) {
            return Ok(self.early.remove(place));
        }
        let start = Instant::now();
        loop {
            while let Some(completion) = self.cq.poll_one() {
                if let Some(completion) = self.sort(completion, wr_id)? {
                    return Ok(completion);
                }
            }
            let waited = start.elapsed();
            if let Some(timeout) = timeout
                && waited >= timeout
            {
                return Err(WaitError::TimedOut(timeout));
            }
            if waited < SPIN {
                continue;
            }
            self.cq.request_notify(false);
            // A completion from before that call raises no event.
            if let Some(completion) = self.cq.poll_one() {
                if let Some(completion) = self.sort(completion, wr_id)? {
                    return Ok(completion);
                }
                continue;
            }
            self.channel.wait(timeout.map(|timeout| timeout - waited))?;
        }
    }

    fn sort(
        &mut self,
        completion: WorkCompletion,
        wr_id: u64,
    ) -> Result<Option<WorkCompletion>, WaitError> {
        self.note(|| Deed::completion(&completion));
        match completion.status {
            WcStatus::Success if completion.wr_id == wr_id => Ok(Some(completion)),
            WcStatus::Success => {
                if completion.wr_id != QUIET {
                    self.early.push(completion);
                }
                Ok(None)
            }
            WcStatus::Flushed => Err(WaitError::Ended),
            status => Err(WaitError::Failed(completion.op, status)),
        }
    }
}
