// SPDX-License-Identifier: MIT OR Apache-2.0

//! Credits: absolute counts of messages in 16 bits, which wrap (RS-FLOW-05). Data and iomap
//! messages need one each.

use super::config::Config;
use super::error::Violation;

/// Credits that the peer has given.
#[derive(Clone, Debug)]
pub(super) struct SendCredit {
    /// Messages sent.
    sent: u16,
    /// The count up to which the peer lets this end send.
    limit: u16,
    /// Receives that the peer has announced.
    queue: u16,
    /// Credits left unused.
    reserve: u16,
}

impl SendCredit {
    /// Credits left to a stranger. The original announces all of its receives, and control messages
    /// take some of them, as many as this end has in spare for its peer's: on iWARP a message
    /// without a receive ends the connection (RS-FLOW-09). It gives new credits when half of its
    /// receives were used, so no more than half may be left.
    const RESERVE: u16 = Config::SPARE_RECEIVES as u16;

    pub(super) fn new(queue: u16, is_tight: bool) -> Self {
        let reserve = if is_tight { Self::RESERVE.min(queue / 2) } else { 0 };
        Self { sent: 0, limit: queue, queue, reserve }
    }

    pub(super) fn is_left(&self) -> bool {
        self.limit.wrapping_sub(self.sent) > self.reserve
    }

    pub(super) fn spend(&mut self) {
        debug_assert!(self.is_left());
        self.sent = self.sent.wrapping_add(1);
    }

    /// Takes a new limit, if it gives no more than the peer can take, and takes nothing back.
    pub(super) fn raise(&mut self, limit: u16) -> Result<(), Violation> {
        let Self { sent, limit: before, queue, .. } = *self;
        let left = limit.wrapping_sub(sent);
        if left > queue || left < before.wrapping_sub(sent) {
            return Err(Violation::Credits { limit, before, sent, queue });
        }
        self.limit = limit;
        Ok(())
    }
}

/// Credits that this end gives.
#[derive(Clone, Debug)]
pub(super) struct Grants {
    /// Messages that came and needed credits. Their receives are posted again before the next
    /// grant.
    consumed: u16,
    /// The count when credits were given last.
    granted: u16,
    /// Receives that were announced.
    queue: u16,
}

impl Grants {
    pub(super) const fn new(queue: u16) -> Self {
        Self { consumed: 0, granted: 0, queue }
    }

    /// Counts a message that needed a credit: one of data or, which the original forgets, of an
    /// iomap entry (RS-FLOW-07).
    pub(super) fn consume(&mut self) -> Result<(), Violation> {
        if self.consumed.wrapping_sub(self.granted) >= self.queue {
            return Err(Violation::BeyondCredits);
        }
        self.consumed = self.consumed.wrapping_add(1);
        Ok(())
    }

    /// True if half of the queue has been consumed since (RS-FLOW-06).
    pub(super) fn is_due(&self) -> bool {
        self.consumed.wrapping_sub(self.granted) >= (self.queue / 2).max(1)
    }

    /// Gives what there is; the number for the message.
    pub(super) fn give(&mut self) -> u16 {
        self.granted = self.consumed;
        self.consumed.wrapping_add(self.queue)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Grants, SendCredit};
    use crate::stream::Violation;

    /// Covers: RS-FLOW-05, RS-FLOW-06
    #[test]
    fn counts_pass_sixteen_bits() {
        let (mut credit, mut grants) = (SendCredit::new(16, false), Grants::new(16));
        let (mut sent, mut given) = (0, 0);
        while sent < 150_000 {
            assert!(credit.is_left(), "stands still after {sent}");
            credit.spend();
            grants.consume().unwrap();
            sent += 1;
            if grants.is_due() {
                credit.raise(grants.give()).unwrap();
                given += 1;
            }
        }
        assert_eq!(given, sent / 8);
    }

    /// Covers: RS-FLOW-09
    #[test]
    fn a_stranger_keeps_some_receives() {
        let used = |queue| {
            let mut credit = SendCredit::new(queue, true);
            let mut used = 0;
            while credit.is_left() {
                credit.spend();
                used += 1;
            }
            used
        };
        assert_eq!([1, 4, 16, 384].map(used), [1, 2, 8, 376]);
    }

    proptest! {
        /// Covers: RS-MSG-08
        #[test]
        fn credits_stay_within_the_peers_receives(
            queue in 1u16.., spent in 0u16.., limit: u16
        ) {
            let mut credit = SendCredit::new(queue, false);
            let spent = spent.min(queue);
            for _ in 0..spent {
                credit.spend();
            }
            let left = limit.wrapping_sub(spent);
            let is_right = left <= queue && left >= queue - spent;
            let expected = if is_right { Ok(()) } else {
                Err(Violation::Credits { limit, before: queue, sent: spent, queue })
            };
            prop_assert_eq!(credit.raise(limit), expected);
        }
    }

    /// Covers: RS-MSG-08
    #[test]
    fn messages_without_credit_are_refused() {
        let mut grants = Grants::new(2);
        assert_eq!([grants.consume(), grants.consume()], [Ok(()), Ok(())]);
        assert_eq!(grants.consume(), Err(Violation::BeyondCredits));
        assert_eq!(grants.give(), 4);
        assert_eq!(grants.consume(), Ok(()));
    }
}
