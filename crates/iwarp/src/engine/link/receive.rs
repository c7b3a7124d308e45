//! What arrives on a stream: read, taken apart, placed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use iwarp_os::IoPartMut;
use iwarp_os::stream::is_bad_address;

use super::pipes::Incoming;
use super::{Link, Receive, bad_address};
use crate::engine::endpoint::Endpoint;
use crate::engine::sync::Ordering;

/// Octets read in one go before others get their turn.
const RECEIVE_BUDGET: usize = 4 * 1024 * 1024;
/// How long messages that came before the end of the stream wait for receives.
const LATE: Duration = Duration::from_millis(300);

/// Octets that came into registered memory and into staging, and the room there was.
struct Read {
    direct: usize,
    staged: usize,
    room: usize,
}

/// One system call that reads into staging; `None` when nothing is there.
fn read_staged(link: &Link, spare: &mut [u8]) -> io::Result<Option<Read>> {
    let room = spare.len();
    let n = link.stream.recv(&mut [IoPartMut::new(spare)]);
    some_octets(n, |staged| Read { direct: 0, staged, room })
}

/// Nothing there is no error.
fn some_octets(n: io::Result<usize>, of: impl FnOnce(usize) -> Read) -> io::Result<Option<Read>> {
    match n {
        Ok(n) => Ok(Some(of(n))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

impl Endpoint {
    /// Receives what is there, and delivers what waits for receives. False when this thread has
    /// seen nothing come.
    pub(super) fn receive(self: &Arc<Self>, link: &Arc<Link>) -> bool {
        // Twice when receives came after the first look. A message that cannot be delivered then
        // either waits for the rest of another one, which will come here.
        let mut moved = false;
        for _ in 0..2 {
            link.receive.request(|receive| moved |= self.receive_some(link, receive));
            if !moved || self.await_receives() {
                break;
            }
        }
        self.watch_time();
        moved
    }

    /// False when nothing has come.
    fn receive_some(self: &Arc<Self>, link: &Link, receive: &mut Receive) -> bool {
        if link.read_ended.load(Ordering::SeqCst) {
            return false;
        }
        self.engine.pool.with_staging(|staging| {
            let have = receive.partial.len();
            if have > 0 {
                staging[..have].copy_from_slice(&receive.partial);
            }
            let waits = link.read_stalled.load(Ordering::SeqCst) || self.has_parked();
            let places = have == 0 && receive.incoming.direct().is_some();
            let mut first = None;
            if !waits && !places {
                // A look that mostly finds nothing, and places nothing.
                match read_staged(link, &mut staging[have..]) {
                    Ok(None) => return false,
                    read => first = Some(read),
                }
            }
            let mut left = None;
            self.receiving(|| {
                let incoming = &mut receive.incoming;
                left = self.receive_on(link, incoming, staging, have, waits, first);
            });
            if let Some(left) = left {
                self.keep_partial(receive, &staging[..left]);
            }
            left.is_some()
        })
    }

    /// Takes apart what is in staging, where messages wait for receives, and what was and will be
    /// read. How much then is left in staging; `None` when nothing has come.
    fn receive_on(
        self: &Arc<Self>,
        link: &Link,
        incoming: &mut Incoming,
        staging: &mut [u8],
        mut have: usize,
        waits: bool,
        mut first: Option<io::Result<Option<Read>>>,
    ) -> Option<usize> {
        let mut moved = waits;
        if waits {
            let stalled = link.read_stalled.load(Ordering::SeqCst);
            self.take_apart(link, incoming, staging, &mut have);
            if stalled && !link.read_stalled.load(Ordering::SeqCst) {
                link.update_interest();
            }
        }
        let mut budget = RECEIVE_BUDGET;
        // What a port holds is reported by nothing else.
        while (budget > 0 || link.may_hold) && !link.read_stalled.load(Ordering::SeqCst) {
            let read = first.take().unwrap_or_else(|| self.read(link, incoming, staging, have));
            let Read { direct, staged, room } = match read {
                Ok(Some(read)) => read,
                Ok(None) => break,
                Err(error) => {
                    moved = true;
                    self.stream_failed(link, &error);
                    break;
                }
            };
            moved = true;
            if direct + staged == 0 {
                // The peer may have closed because of what another thread is sending: what
                // the stream took completes, and only the rest is flushed.
                link.transmit.quiesce();
                if have > 0 || !self.hold_end(link) {
                    incoming.eof(self, have);
                }
                link.read_ended.store(true, Ordering::SeqCst);
                link.update_interest();
                break;
            }
            incoming.received_directly(direct);
            have += staged;
            self.take_apart(link, incoming, staging, &mut have);
            if link.read_stalled.load(Ordering::SeqCst) {
                link.update_interest();
                break;
            }
            if direct + staged < room && !link.may_hold {
                break;
            }
            budget = budget.saturating_sub(direct + staged);
        }
        moved.then_some(have)
    }

    /// Whether the end of the stream is kept from the queue pair for a moment: messages wait for
    /// receives, which the program may be about to post.
    fn hold_end(self: &Arc<Self>, link: &Link) -> bool {
        if !self.has_parked() {
            return false;
        }
        link.end_held.store(true, Ordering::SeqCst);
        let weak = Arc::downgrade(self);
        let tell = move || {
            let Some(endpoint) = weak.upgrade() else { return };
            if let Some(link) = endpoint.link()
                && link.end_held.swap(false, Ordering::SeqCst)
            {
                let end = |receive: &mut Receive| receive.incoming.eof(&endpoint, 0);
                link.receive.request(|receive| endpoint.receiving(|| end(receive)));
                endpoint.settle(&link);
            }
        };
        self.engine.worker.at(self.now().plus(LATE), Box::new(tell));
        true
    }

    /// Hands the first `have` octets of `staging` to the protocol; what it leaves is moved to the
    /// front.
    fn take_apart(
        self: &Arc<Self>,
        link: &Link,
        incoming: &mut Incoming,
        staging: &mut [u8],
        have: &mut usize,
    ) {
        let memory = &*self.engine.memory;
        let used = incoming.receive(self, memory, &mut staging[..*have]);
        staging.copy_within(used..*have, 0);
        *have -= used;
        if link.read_stalled.load(Ordering::SeqCst) != incoming.is_stalled() {
            link.read_stalled.store(incoming.is_stalled(), Ordering::SeqCst);
        }
    }

    /// A connection owns memory for the part of a message unit only while it has one.
    fn keep_partial(&self, receive: &mut Receive, rest: &[u8]) {
        if rest.is_empty() {
            if receive.partial.capacity() > 0 {
                self.engine.pool.give_block(std::mem::take(&mut receive.partial));
            }
            return;
        }
        if receive.partial.capacity() == 0 {
            receive.partial = self.engine.pool.block();
        }
        receive.partial.clear();
        if receive.partial.try_reserve_exact(rest.len()).is_err() {
            // The stream cannot be followed any further.
            self.with(|core| core.fail_locally("out of memory"));
            return;
        }
        receive.partial.extend_from_slice(rest);
    }

    /// One system call: into registered memory where the protocol says so, and into staging.
    /// `None` when nothing is there.
    fn read(
        &self,
        link: &Link,
        incoming: &mut Incoming,
        staging: &mut [u8],
        have: usize,
    ) -> io::Result<Option<Read>> {
        let spare = &mut staging[have..];
        let direct = if have == 0 { incoming.direct() } else { None };
        // What a stream that has ended still brings is dropped.
        let Some(direct) = direct.filter(|_| self.is_connected()) else {
            return read_staged(link, spare);
        };
        let guard = match self.guard(&direct.target, true) {
            Ok(guard) => guard,
            Err(error) => {
                incoming.direct_refused(error);
                return read_staged(link, spare);
            }
        };
        let room = guard.len() + spare.len();
        let n = link.stream.recv(&mut [IoPartMut::from(&guard), IoPartMut::new(spare)]);
        if n.as_ref().is_err_and(is_bad_address) {
            // Nothing was taken from the stream: the rest of the segment comes by way of staging,
            // where it is dropped.
            incoming.direct_refused(bad_address(&guard));
            return read_staged(link, spare);
        }
        some_octets(n, |n| {
            let direct = n.min(guard.len());
            Read { direct, staged: n - direct, room }
        })
    }
}
