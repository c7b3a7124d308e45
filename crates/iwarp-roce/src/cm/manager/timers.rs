// SPDX-License-Identifier: MIT OR Apache-2.0

//! The steps taken on timeouts.

use iwarp_types::Time;

use super::super::connection::{CmState, Patience, Retry};
use super::super::event::{EventKind, Unreachable};
use super::super::message::{PrivateData, Rejected};
use super::super::reason::RejectReason;
use super::super::settings::Random;
use super::Manager;

impl<R: Random> Manager<R> {
    /// Does what is due by `now`.
    pub fn advance(&mut self, now: Time) {
        while let Some((path, mad)) = self.vacancies.expired(now) {
            self.receive(&mad.write(), &path, now);
        }
        while let Some(id) = self.table.expired(now) {
            if self.table.sidr(id).is_some() {
                self.sidr_due(id, now);
            } else {
                self.connection_due(id, now);
            }
        }
    }

    fn connection_due(&mut self, id: u32, now: Time) {
        let Some(connection) = self.table.get(id) else { return };
        let again = |retry: Retry| Retry::new(retry.left.saturating_sub(1));
        match connection.state {
            CmState::ReqSent(retry) if retry.left > 0 => {
                self.send_again(id, CmState::ReqSent(again(retry)), now);
            }
            CmState::RepSent(retry) if retry.left > 0 => {
                // A peer that asked for a connection may ask for time only once: it holds a slot.
                let Retry { left, extended } = retry;
                let again = Retry { left: left.saturating_sub(1), extended };
                self.send_again(id, CmState::RepSent(again), now);
            }
            CmState::DreqSent(retry) if retry.left > 0 => {
                self.send_again(id, CmState::DreqSent(again(retry)), now);
            }
            CmState::ReqSent(_) | CmState::RepSent(_) => self.unreachable(id, Unreachable::Silent),
            CmState::DreqSent(_) => {
                let private_data = PrivateData::EMPTY;
                self.end(id, EventKind::Disconnected { private_data, timed_out: true }, now);
            }
            CmState::ReqReceived(patience) => {
                if self.ask_for_time(id, patience, Rejected::Req, now) {
                    let asked = Patience { asked: true, ..patience };
                    self.enter(id, CmState::ReqReceived(asked), Some(patience.gone));
                } else {
                    self.unreachable(id, Unreachable::TooSlow);
                }
            }
            CmState::RepReceived(patience) => {
                if self.ask_for_time(id, patience, Rejected::Rep, now) {
                    let asked = Patience { asked: true, ..patience };
                    self.enter(id, CmState::RepReceived(asked), Some(patience.gone));
                } else {
                    self.unreachable(id, Unreachable::TooSlow);
                }
            }
            CmState::Timewait => {
                let event =
                    connection.qp.and_then(|qp| connection.event(EventKind::TimewaitExit { qp }));
                self.tell(event);
                self.forget(id);
            }
            CmState::Refused => self.forget(id),
            CmState::Established => {}
        }
    }

    /// Sends the stored message once more (REP: ROCE-155).
    fn send_again(&mut self, id: u32, state: CmState, now: Time) {
        let Some(connection) = self.table.get(id) else { return };
        let (way, deadline) = (connection.way, now.plus(connection.interval));
        let stored = connection.stored.as_deref().copied();
        self.enter(id, state, Some(deadline));
        if let Some(octets) = stored {
            self.send(way, octets);
        }
    }

    /// Sends an MRA (ROCE-162), unless that has been done, or the peer is gone.
    fn ask_for_time(&mut self, id: u32, patience: Patience, received: Rejected, now: Time) -> bool {
        if patience.asked || now >= patience.gone {
            return false;
        }
        let Some(connection) = self.table.get(id) else { return false };
        let mra = connection.mra(received, self.settings.service_timeout);
        let way = connection.way;
        self.answer(way, &mra);
        true
    }

    fn unreachable(&mut self, id: u32, cause: Unreachable) {
        let Some(connection) = self.table.get(id) else { return };
        let event = connection.event(EventKind::Unreachable(cause));
        self.tell(event);
        self.give_up(id);
    }

    /// Tells the peer that this end has given up, and forgets the connection.
    pub(super) fn give_up(&mut self, id: u32) {
        let Some(connection) = self.table.get(id) else { return };
        let rejected = match connection.state {
            CmState::ReqReceived(_) => Rejected::Req,
            CmState::RepReceived(_) => Rejected::Rep,
            _ => Rejected::Other,
        };
        let guid = Some(self.settings.guid);
        let rej = connection.rej(rejected, RejectReason::Timeout, guid, [0; 148]);
        let way = connection.way;
        self.answer(way, &rej);
        self.forget(id);
    }
}
