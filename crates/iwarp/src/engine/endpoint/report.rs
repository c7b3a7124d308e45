// SPDX-License-Identifier: MIT OR Apache-2.0

//! The messages to programs and their users about a connection that ended before its time.

use iwarp_types::{Cause, Protocol, Reason, Refusal};

use super::refusal::{PEERS_OWN, peer_of};
use super::{Endpoint, Program};
use crate::engine::event::AsyncEvent;
use crate::engine::mover::StreamMover;
use crate::engine::options::Personality;
use crate::report;

impl Endpoint {
    /// Writes down why a connection ended before its time.
    #[cold]
    pub(super) fn report_terminate(
        &self,
        link: Option<&dyn StreamMover>,
        reason: Reason,
        fault: Option<&dyn Cause>,
        refusal: Option<&Refusal>,
    ) {
        // That a message found no receive says all there is to say.
        if let Some(refusal) = refusal.filter(|_| !reason.is_no_receive()) {
            return self.report_refusal(link, reason, fault.is_some(), refusal);
        }
        let peer = peer_of(link);
        let (qp, code, meaning) = (self.id(), reason.notation(), reason.name());
        let here = fault.is_some();
        let hint = match reason {
            _ if reason.is_no_receive() => self.hint_on_receives(here),
            _ if reason.is_refused_access() => Some(hint_on_access(here)),
            _ if !here && reason.protocol() == Protocol::Iwarp && reason.code() == 0 => {
                Some(PEERS_OWN)
            }
            _ => None,
        };
        match fault {
            Some(fault) => {
                report!(
                    WARN,
                    qp,
                    peer,
                    %code,
                    meaning,
                    %fault,
                    hint,
                    "this end terminated the connection"
                );
            }
            None => {
                report!(WARN, qp, peer, %code, meaning, hint, "the peer terminated the connection");
            }
        }
    }

    /// perftest's ib_send_bw, for one, has credits where its own end is an RNIC, and waits for ever
    /// for those of a peer that is none.
    #[cold]
    pub(super) fn report_other_device(&self, link: Option<&dyn StreamMover>) {
        let peer = peer_of(link);
        let (here, there) = match self.profile.options.personality {
            Personality::Iwarp => ("iwarp", "roce"),
            Personality::Roce => ("roce", "iwarp"),
        };
        report!(
            burst 1,
            WARN,
            peer,
            "the device is {here} here and {there} at the peer: if the programs do not \
             understand each other, give both ends the same --personality"
        );
    }

    /// Two programs may wait for each other: siw, for one, lets a responder send at once, and sends
    /// no first frame of its own accord, so what runs between two ends of its kind need not run
    /// here.
    #[cold]
    pub(super) fn report_held_back(&self, link: Option<&dyn StreamMover>) {
        let peer = peer_of(link);
        report!(
            WARN,
            qp = self.id(),
            peer,
            "the accepting side may not send before the connecting side has (RFC 5044, section \
             7.1.2), which has sent nothing yet: if that waits as well, have it ask for an RTR \
             frame (here IWARP_PEER_TO_PEER=any at the connecting side, with siw peer_to_peer=1)"
        );
    }

    /// The peer's program waits as well, for its Send to complete, and neither hears why.
    #[cold]
    pub(super) fn report_no_receive(&self, link: Option<&dyn StreamMover>) {
        let peer = peer_of(link);
        report!(
            WARN,
            qp = self.id(),
            peer,
            "a message of the peer's waits for a receive, and so do all behind it: post receives \
             (ibv_post_recv, or ibv_post_srq_recv where the queue pair has a shared receive queue)"
        );
    }

    /// The advice when a Send found no receive, which over InfiniBand would have waited.
    fn hint_on_receives(&self, here: bool) -> Option<&'static str> {
        match (here, self.profile.options.personality) {
            (true, Personality::Iwarp) => Some(
                "a message came before its receive was posted: try --personality roce \
                 (IWARP_PERSONALITY=roce), which lets messages wait",
            ),
            (true, Personality::Roce) => Some(
                "no receive was posted for as long as min_rnr_timer here and rnr_retry at the peer \
                 say (rnr_retry_count here, where the connection manager connects): post receives \
                 before the peer sends, or set it to 7 (no limit)",
            ),
            (false, Personality::Roce) => Some(
                "the peer had posted no receive: a device like InfiniBand waits for as long as \
                 rnr_retry here (or rnr_retry_count there; 7: no limit) and min_rnr_timer there \
                 say, an RNIC does not wait",
            ),
            (false, Personality::Iwarp) => Some(
                "a message came before the peer had posted its receive: try --personality roce \
                 (IWARP_PERSONALITY=roce) at the peer, which lets messages wait",
            ),
        }
    }

    /// True if programs are told of the end as by an RNIC.
    fn tells_as_rnic(&self, reason: Reason) -> bool {
        self.profile.options.personality == Personality::Iwarp
            && reason.protocol() != Protocol::Roce
    }

    /// Decides what the program is told where the queue pair ends by what this end found. A RoCE
    /// card has an event for it only where no work request says it. `access`: the peer reached for
    /// memory that it may not or cannot have.
    #[cold]
    pub(super) fn judge_fault(&self, reason: Reason, access: bool, program: &mut Program) {
        let qp = self.id();
        let rnic = self.tells_as_rnic(reason);
        let event = match reason {
            _ if access => AsyncEvent::QpAccessError { qp },
            _ if rnic => AsyncEvent::QpFatal { qp },
            // The requester's matter. A card's queue pair even lives on.
            _ if reason.is_no_receive() => return,
            _ if reason.is_invalid_request() => AsyncEvent::QpRequestError { qp },
            _ => AsyncEvent::QpFatal { qp },
        };
        match rnic {
            true => self.tell(event, program),
            false => program.verdict = Some(event),
        }
    }

    /// As above, where the peer has ended it. Over RoCE v2 a work request always says why; over
    /// iWARP one may be done by then.
    #[cold]
    pub(super) fn judge_terminated(&self, reason: Reason, program: &mut Program) {
        let fatal = AsyncEvent::QpFatal { qp: self.id() };
        if self.tells_as_rnic(reason) {
            return self.tell(fatal, program);
        }
        // The peer may have failed by itself, of which no card hears.
        let is_local = reason.protocol() == Protocol::Iwarp && reason.code() == 0;
        let is_ours = reason.protocol() != Protocol::Roce && !is_local;
        program.verdict = is_ours.then_some(fatal);
    }

    /// Tells the program what was decided, unless a work request `is_told` of it.
    pub(super) fn report_verdict(&self, is_told: bool, program: &mut Program) {
        if let Some(event) = program.verdict.take()
            && !is_told
        {
            self.tell(event, program);
        }
    }

    fn tell(&self, event: AsyncEvent, program: &Program) {
        if !program.gone {
            self.events.push(event);
        }
    }
}

/// The advice when memory was reached for that had not been lent.
const fn hint_on_access(here: bool) -> &'static str {
    match here {
        true => {
            "the peer reached for memory that this end has not registered for it: do both ends use \
             the same sizes?"
        }
        false => {
            "this end reached for memory that the peer has not registered for it: do both ends use \
             the same sizes?"
        }
    }
}
