// SPDX-License-Identifier: MIT OR Apache-2.0

//! The end of a stream, and the fate of the work requests.
//!
//! The program closes it ([`Qp::disconnect`]), the peer does, a fault is found, the transport
//! breaks, or it is given up. Requests taken by then complete well, the rest are flushed, or
//! outlive the peer for a while.
//!
//! # Endings that the RFCs leave open
//!
//! - A queue pair that is about to end first processes the data that have already arrived.
//! - After `disconnect`, arriving data are read and discarded until the peer's FIN.
//! - A peer that closes while only acknowledgements are missing, its own or ours, has closed well.
//!   The requests concerned are flushed.
//! - One acknowledgement is under way at a time. So several delivered Sends may complete only with
//!   the last of them, where InfiniBand would complete each at once. None waits for a message
//!   behind it that finds no receive, if the peer is of our kind and this end reads on
//!   (`qp/outbound/count.rs`). The farewell of an end that leaves says how many messages that end
//!   has received, so their sender flushes none of them for want of an answer.
//!
//! # Requests that outlive the stream
//!
//! Over InfiniBand no end learns that its peer has left: work requests stay in their queues until
//! the program moves its queue pair or an answer is overdue. So under the personality `roce`, and
//! for queue pairs that are connected without the connection manager, work requests outlive a peer
//! that has closed in good order, for 1 s. Then the oldest request fails with `RetryExceeded`, and
//! the rest is flushed. The stream is closed, and the connection manager's event comes, at once.
//!
//! A peer that breaks off in the middle of a message or of an FPDU has not left in good order.
//! Neither has a peer that runs or may run this library, was asked for its farewell and sent none:
//! it has crashed, and everything is flushed at once.
//!
//! Without the connection manager, an end takes the connection before it knows that the peer does.
//! A peer whose program leaves RTR or RTS at that moment sends it away, by a FIN or a reset, and
//! never says a word. Work requests outlive that too: over InfiniBand packets would find no queue
//! pair. An end that has the connection and leaves before it has heard the peer says its farewell
//! in any case.
//!
//! Any other peer cannot say a farewell, and Linux siw forgets the Reads that it has not answered
//! when its program closes. Where work requests outlive such a peer, the Sends and Writes that its
//! TCP has acknowledged therefore succeed: over InfiniBand its card would have acknowledged them.
//! An acknowledgement of TCP only means that data are in a receive buffer, but a peer that closes
//! with a FIN, between two messages and without a Terminate, has emptied it. A socket that Linux
//! closes with unread data ends with a reset, and so does one that gets data after it was closed.
//! siw takes data in order, under the lock under which it closes, and answers what is wrong with a
//! Terminate. It drops the rest of a segment only if its program destroys the queue pair at that
//! moment (`rx_suspend` in `siw_destroy_qp`). A card's TCP is the card's.
//!
//! This does not hold for a stack that shuts down only its write side and discards the rest, as
//! this library does; the farewell exists for that reason. With `IWARP_EXTENSIONS=refuse` this
//! library says none, and a Send that crosses its closing may count as received.

use iwarp_types::{Extensions, QpState, WcStatus};

use super::{Disposition, Event, Qp, Stream};
use crate::framing::FramingFault;
use crate::rdmap::hello::{Capabilities, PeerKind};
use crate::rdmap::terminate::Fault;

impl Qp {
    /// Ends the stream in good order: receives are flushed, the Sends and Writes that were accepted
    /// go out (RFC 5041 §6.2.1), what needs an answer is flushed, then the write side is shut down
    /// (see [`Disposition`]). Reads of no octets that the peer has sent are answered: it learns
    /// what had arrived. Reads behind a message that still waits for its receive are not.
    pub fn disconnect(&mut self) {
        self.state = QpState::Err;
        if self.stream == Stream::Operating {
            self.leave_operation(Stream::Closing);
            // A peer that has not asked takes it for a Write of no octets.
            let may_ask = self.in_place && self.peer == PeerKind::Unknown;
            if may_ask || self.peer.has(Capabilities::FAREWELL) {
                self.outbound.say_farewell(self.inbound.received());
            }
            if !self.irq.keep_empty(self.inbound.late_delivered()) {
                self.outbound.drop_answer();
            }
            self.flush_receives();
            self.finish_closing();
        } else if self.stream == Stream::Detached {
            self.flush_all();
        } else if self.stream == Stream::Outlived {
            self.end_stream();
        }
    }

    /// The stream broke: nothing can be sent or will arrive.
    pub fn lost(&mut self) {
        match self.stream {
            Stream::Operating if self.is_sent_away() => self.outlive_peer(),
            _ => self.end_broken(),
        }
    }

    fn end_broken(&mut self) {
        if matches!(self.stream, Stream::Operating | Stream::Closing | Stream::Terminating) {
            if self.stream == Stream::Operating {
                self.events.push_back(Event::Lost);
            }
            self.end_stream();
        }
    }

    /// Ends the stream because the peer has not answered for too long: the oldest request that has
    /// not ended says so.
    pub fn timed_out(&mut self) {
        if matches!(self.stream, Stream::Operating | Stream::Closing) {
            self.retries_exceeded();
        }
        self.end_broken();
    }

    pub(super) fn retries_exceeded(&mut self) {
        if let Some(number) = self.sq.oldest() {
            self.sq.fail(number, WcStatus::RetryExceeded);
        }
    }

    /// The program or the engine gives the connection up: reset it.
    pub fn abort(&mut self) {
        if self.stream != Stream::Detached {
            self.abort = true;
        }
        self.end_stream();
    }

    /// A local error that ends the stream with a Terminate "local catastrophic error".
    pub fn fail_locally(&mut self, what: &'static str) {
        self.fail(Fault::Local(what));
    }

    /// The fate of the stream once everything built is taken.
    pub fn disposition(&self) -> Disposition {
        match self.stream {
            _ if self.abort => Disposition::Abort,
            Stream::Ended | Stream::Outlived => Disposition::Finish,
            Stream::Detached | Stream::Operating | Stream::Closing | Stream::Terminating => {
                Disposition::Open
            }
        }
    }

    /// A fault ends the stream: the first one decides the Terminate (RFC 5040 §7.1(4)).
    #[cold]
    pub(crate) fn fail(&mut self, fault: Fault) {
        if !matches!(self.stream, Stream::Operating | Stream::Closing) {
            return;
        }
        self.events.push_back(Event::Fault(fault));
        self.outbound.terminate(&fault, self.inbound.quoted(&fault));
        self.leave_operation(Stream::Terminating);
        self.state = QpState::Err;
        self.flush_all();
    }

    /// The peer closed its side. With work pending that is a fault of the stream, which a Terminate
    /// can still report; otherwise it ends well. Work requests that may outlive the stream do so in
    /// either case, unless the peer did not mean to end here. `acknowledged`: how many octets of
    /// ours the transport says that the peer has, where that counts ([`Self::believes_transport`]).
    /// `cut`: the framing's fault, where the stream ends within a frame.
    pub(crate) fn peer_closed(
        &mut self,
        cut: Option<&'static FramingFault>,
        acknowledged: Option<u64>,
    ) {
        let inside_work = self.is_inside_work();
        let outlives = self.outlives_close();
        match (self.stream, cut) {
            (Stream::Operating, Some(fault)) => self.fail(Fault::Framing(fault)),
            (Stream::Operating, None) if outlives => {
                self.outlive_peer();
                self.credit_farewell();
                self.credit_transport(acknowledged);
            }
            (Stream::Operating, None) if inside_work => self.fail(Fault::BadClose),
            (Stream::Operating, None) => {
                self.events.push_back(Event::Disconnected);
                self.end_stream();
            }
            _ => {}
        }
    }

    /// The stream is over, and work requests wait for a while.
    fn outlive_peer(&mut self) {
        self.events.push_back(Event::Disconnected);
        self.leave_operation(Stream::Outlived);
        self.outbound.stop();
        self.irq.clear();
    }

    /// True if work requests outlive a stream that the peer closes now.
    fn outlives_close(&self) -> bool {
        self.is_sent_away() || (self.outlive.is_some() && !self.is_broken_off())
    }

    /// True if a peer that ends the stream now has never taken it.
    fn is_sent_away(&self) -> bool {
        self.in_place && self.outlive.is_some() && self.peer == PeerKind::Unknown
    }

    /// True if what the transport has acknowledged counts as received if the peer closes now. One
    /// of our kind says itself what it has received. Any other has no word for that; but as it
    /// closes in good order, between two messages and without a Terminate, its stack has taken what
    /// its transport has acknowledged.
    pub(crate) fn believes_transport(&self) -> bool {
        self.stream == Stream::Operating
            && self.config.acknowledge
            && self.config.extensions == Extensions::Ask
            && self.peer == PeerKind::Foreign
            && self.outlives_close()
    }

    /// True if a peer that closes has crashed: there is half a message, or the farewell is missing
    /// that those of our kind say where they are asked to, as this one is or may be.
    fn is_broken_off(&self) -> bool {
        let owes_farewell = self.config.extensions == Extensions::Ask
            && self.config.acknowledge
            && self.peer != PeerKind::Foreign;
        self.inbound.inside_message() || (owes_farewell && self.peer_received.is_none())
    }

    /// Messages that the peer had received when it left are done.
    #[cold]
    pub(crate) fn credit_farewell(&mut self) {
        if let Some(received) = self.peer_received {
            self.credit(received);
        }
    }

    /// The peer says how many messages it has received: they are done. False, and the end of the
    /// stream, where that cannot be.
    #[cold]
    pub(crate) fn credit(&mut self, received: u64) -> bool {
        match self.sq.told_received(received) {
            Ok(()) => {
                self.reap();
                true
            }
            Err(error) => {
                self.fail(error.into());
                false
            }
        }
    }

    /// Messages that the transport has acknowledged are done.
    fn credit_transport(&mut self, acknowledged: Option<u64>) {
        if let Some(position) = acknowledged {
            let below = self.sq.sent_before(position);
            self.sq.acknowledged(below);
            self.reap();
        }
    }

    /// True if a peer that closes does so in the middle of something. A missing acknowledgement
    /// does not count: requests of ours that wait for one are flushed, and the peer waits for it no
    /// more.
    fn is_inside_work(&mut self) -> bool {
        self.irq.ask_for_more()
            || self.inbound.inside_message()
            || !self.sq.awaits_only_acknowledgements()
    }

    pub(super) fn end_stream(&mut self) {
        self.leave_operation(Stream::Ended);
        self.state = QpState::Err;
        self.outbound.stop();
        self.flush_all();
    }

    /// While closing: once nothing is left that can be sent, the rest is flushed.
    pub(crate) fn finish_closing(&mut self) {
        if self.stream != Stream::Closing || !self.outbound.is_idle() || !self.irq.is_empty() {
            return;
        }
        if self.may_start_closing() || self.outbound.owes_farewell() {
            return;
        }
        self.sq.flush_unstarted();
        self.reap();
        if !self.sq.waits_for_stream() {
            self.end_stream();
        }
    }

    /// The Terminate was built: nothing follows it.
    pub(crate) fn terminate_built(&mut self) {
        self.leave_operation(Stream::Ended);
    }

    pub(super) fn flush_all(&mut self) {
        self.orq.clear();
        self.irq.clear();
        self.flush_sends();
        self.flush_receives();
    }

    fn flush_sends(&mut self) {
        self.sq.flush();
        self.reap();
    }

    pub(super) fn flush_receives(&mut self) {
        self.inbound.flush_open(self.config.qp, &mut self.events);
        let events = &mut self.events;
        self.rq.flush(self.config.qp, |wc| events.push_back(Event::ReceiveCompleted(wc)));
        if self.config.shared_receive && self.inbound.report_last_receive() {
            self.events.push_back(Event::LastReceiveReached);
        }
    }

    /// Completes what is done, in order of submission (RFC 5040 §5.5(15)).
    pub(crate) fn reap(&mut self) {
        let Self { sq, events, config, .. } = self;
        while sq.pop_done(config.qp, |event| events.push_back(event)) {}
        self.report_drained();
    }

    pub(super) fn report_drained(&mut self) {
        if self.state == QpState::Sqd && !self.drain_reported && !self.sq.has_started() {
            self.drain_reported = true;
            self.events.push_back(Event::SendQueueDrained);
        }
    }

    /// A local operation of the send queue failed: its work request says why, the rest is
    /// flushed, the peer is told that this side gave up (RFC 5040 §7.1(1)).
    pub(crate) fn fail_send(&mut self, number: u64, status: WcStatus, what: &'static str) {
        self.fail_send_by(number, status, Fault::Local(what));
    }

    /// Fails a request by the fault that is named.
    pub(crate) fn fail_send_by(&mut self, number: u64, status: WcStatus, fault: Fault) {
        self.sq.fail(number, status);
        self.fail(fault);
    }
}
