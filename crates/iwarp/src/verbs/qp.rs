//! Queue pairs.

use std::sync::Arc;
use std::time::Duration;

use iwarp_proto::memory::QpId;
use iwarp_proto::qp::{
    Config, PostError, RecvRequest, SendRequest, Shared, State, TransitionError,
};

use crate::engine::endpoint::Endpoint;
use crate::verbs::cq::CompletionQueue;
use crate::verbs::pd::PdCore;
use crate::verbs::srq::SharedReceiveQueue;

/// Silence after which an initiator repeats itself, for peers that overlooked its first frame.
const NUDGE: Duration = Duration::from_millis(200);

/// How a queue pair is made.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairAttributes<'a> {
    /// Where send work requests complete.
    pub send_cq: &'a CompletionQueue,
    /// Where receive work requests complete.
    pub recv_cq: &'a CompletionQueue,
    /// Where receives come from, if not from the queue pair's own queue.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// Send work requests that may be outstanding.
    pub max_send_wr: usize,
    /// Receive work requests that may be outstanding.
    pub max_recv_wr: usize,
    /// Elements of a send work request.
    pub max_send_sge: usize,
    /// Elements of a receive work request.
    pub max_recv_sge: usize,
    /// Octets of inline data.
    pub max_inline: usize,
}

impl<'a> QueuePairAttributes<'a> {
    /// Middling sizes: 128 requests each way, 16 elements, 256 octets of inline data.
    pub const fn new(send_cq: &'a CompletionQueue, recv_cq: &'a CompletionQueue) -> Self {
        Self {
            send_cq,
            recv_cq,
            srq: None,
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 16,
            max_recv_sge: 16,
            max_inline: 256,
        }
    }
}

/// A reliable connected queue pair. Connect it with [`crate::cm`].
///
/// Dropping it ends its connection in good order: what was accepted still goes out, in the
/// background and for a bounded time.
#[derive(Debug)]
pub struct QueuePair {
    pub(crate) endpoint: Arc<Endpoint>,
    _pd: Arc<PdCore>,
    _srq: Option<SharedReceiveQueue>,
}

impl QueuePair {
    pub(crate) fn new(pd: &Arc<PdCore>, attributes: &QueuePairAttributes<'_>) -> Self {
        let engine = Arc::clone(&pd.engine);
        let config = Config {
            qp: QpId(engine.next_qp()),
            pd: pd.id,
            max_send_wr: attributes.max_send_wr,
            max_recv_wr: attributes.max_recv_wr,
            max_send_sge: attributes.max_send_sge,
            max_recv_sge: attributes.max_recv_sge,
            max_inline: attributes.max_inline,
            shared_receive: attributes.srq.is_some(),
            extensions: engine.options.extensions,
            nudge: Some(NUDGE),
            ..Config::default()
        };
        let endpoint = Endpoint::new(
            engine,
            config,
            Arc::clone(&attributes.send_cq.core),
            Arc::clone(&attributes.recv_cq.core),
            attributes.srq.map(|srq| Arc::clone(&srq.core)),
            Arc::clone(&pd.events),
        );
        // Reset may always become Init.
        let _ = endpoint.modify(State::Init);
        Self { endpoint, _pd: Arc::clone(pd), _srq: attributes.srq.cloned() }
    }

    /// Its number (24 bits).
    pub fn number(&self) -> u32 {
        self.endpoint.id()
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.endpoint.with(|qp| qp.state())
    }

    /// Changes its state. The connection manager does what connecting needs.
    ///
    /// # Errors
    ///
    /// [`TransitionError`] where the verbs do not allow it.
    pub fn modify(&self, to: State) -> Result<(), TransitionError> {
        self.endpoint.modify(to)
    }

    /// Posts a send work request.
    ///
    /// # Errors
    ///
    /// [`PostError`] says why it was not taken.
    pub fn post_send(&self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.post_sends(std::slice::from_ref(request)).map_err(|(_, error)| error)
    }

    /// Posts send work requests in order; those that fit together go out in one system call.
    ///
    /// # Errors
    ///
    /// Which was refused, and why: those before it were taken, those behind it not looked at.
    pub fn post_sends(&self, requests: &[SendRequest<'_>]) -> Result<(), (usize, PostError)> {
        self.endpoint.post_send(requests)
    }

    /// Posts a receive work request.
    ///
    /// # Errors
    ///
    /// [`PostError`] says why it was not taken.
    pub fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), PostError> {
        self.post_recvs(std::slice::from_ref(request)).map_err(|(_, error)| error)
    }

    /// Posts receive work requests in order.
    ///
    /// # Errors
    ///
    /// As [`Self::post_sends`].
    pub fn post_recvs(&self, requests: &[RecvRequest<'_>]) -> Result<(), (usize, PostError)> {
        self.endpoint.post_recv(requests)
    }

    /// Whether its connection is up.
    pub fn is_connected(&self) -> bool {
        self.endpoint.is_connected()
    }

    /// The read depths that the connection agreed on: outbound (ORD) and inbound (IRD).
    pub fn read_depths(&self) -> (usize, usize) {
        self.endpoint.with(|qp| qp.read_depths())
    }

    /// Work requests that have not completed: sends and receives.
    pub fn outstanding(&self) -> (usize, usize) {
        self.endpoint.with(|qp| qp.outstanding())
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.endpoint.engine.memory.revoke_stream(self.endpoint.qp_id());
        self.endpoint.abandon();
    }
}
