// SPDX-License-Identifier: MIT OR Apache-2.0

//! The line between two processes of one host, by which their connections agree to move.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use iwarp_os::local::{Alert, Heap, MappedArena, Marks, PeerMemory, Ring};
use iwarp_os::owner::{is_known, own_users};
use iwarp_os::unix::SeqSocket;
use iwarp_os::{EventFd, Interest, PassedFd, Ready};

use super::end::LocalEnd;
use super::hindrance::{Cannot, Cause, Hindrance};
use super::message::{Answer, Arena, Join, LEN, Message, Reach};
use super::outbox::{Outbox, Rest};
use super::over::Over;
use crate::engine::sync::Mutex;
use crate::engine::tasks::Task;
use crate::engine::worker::Worker;
use crate::port::local::{Channel, Passing, ROOM, Shown, Way};
use crate::port::{Descriptors, Ends, canonical};
use crate::report;

/// Messages that are read before others get their turn.
const BUDGET: usize = 64;
/// Time after which a message is said again for which the system had no room.
const SHORTAGE: Duration = Duration::from_millis(10);

/// Time for which a line stays that no connection uses.
const IDLE: Duration = Duration::from_secs(1);

/// The connections of this process that wait for the process at the other end.
pub(super) trait Offers: Send + Sync {
    /// The connection whose initiator knows this secret. It is used once.
    fn take(&self, join: &Join) -> Option<Arc<dyn LocalEnd>>;
    /// This process wants CRCs in rings.
    fn demands_crc(&self) -> bool;
    /// Processes that may not read this one's memory map arenas of it, too.
    fn shares(&self) -> bool;
    /// Shows another process the memory of this one, and has a descriptor to pass. To be called by
    /// the worker.
    fn show(&self) -> Option<(Arc<Shown>, PassedFd)>;
}

/// See the [module](self).
pub(super) struct Line {
    itself: Weak<Self>,
    socket: SeqSocket,
    offers: Weak<dyn Offers>,
    worker: Weak<Worker>,
    task: AtomicU64,
    /// The memory of this process, for the other one to read, until that has said whether it can.
    showing: Mutex<Option<Arc<Shown>>>,
    /// Made by the process that has connected; there when its hello has come.
    channel: OnceLock<Arc<Channel>>,
    /// Connections of which this process has asked whether they move, in the order of the answers.
    asked: Mutex<VecDeque<Asked>>,
    /// Messages that the socket has no room for.
    unsaid: Mutex<Outbox>,
    /// This process has begun it, and asks; the other one answers.
    asks: bool,
    /// The user that this process was then.
    user: u32,
    /// The other has told a secret.
    proven: AtomicBool,
    over: AtomicBool,
}

/// A connection of which the other process was asked whether it moves.
struct Asked {
    slot: u16,
    /// It may be closed before the answer comes, and its slot be another's.
    end: Weak<dyn LocalEnd>,
    /// This process wants CRCs.
    crc: bool,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

impl Line {
    /// Connects to the process with that name.
    pub(super) fn begin(
        name: &[u8],
        offers: Weak<dyn Offers>,
        worker: &Arc<Worker>,
    ) -> Result<Arc<Self>, Cannot> {
        let socket = SeqSocket::connect(name).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Cannot::Yet,
            io::ErrorKind::ConnectionRefused => Cannot::AtAll(Cause::Unreachable.into()),
            _ => Cannot::AtAll(error.into()),
        })?;
        Ok(Self::begin_by(socket, offers, worker)?)
    }

    fn begin_by(
        socket: SeqSocket,
        offers: Weak<dyn Offers>,
        worker: &Arc<Worker>,
    ) -> Result<Arc<Self>, Hindrance> {
        let user = check_user(&socket)?;
        let (marks, fds) = Marks::create()?;
        let (showing, page) = offers.upgrade().and_then(|offers| offers.show()).unzip();
        let passed: Vec<_> =
            fds.passed().into_iter().chain(page.as_ref().map(PassedFd::as_fd)).collect();
        socket.send(&Message::Hello.encode(), &passed)?;
        let line = Self::new(socket, offers, worker, true, user);
        *line.showing.lock() = showing;
        let channel = line.channel(marks);
        let weak = Weak::clone(&line.itself);
        channel.when_unused(move || {
            if let Some(line) = weak.upgrade() {
                line.rest();
            }
        });
        let _ = line.channel.set(channel);
        line.serve(worker)?;
        Ok(line)
    }

    fn channel(&self, marks: Marks) -> Arc<Channel> {
        let channel = Channel::new(marks);
        let weak = Weak::clone(&self.itself);
        channel.pass_by(move |what| weak.upgrade().is_some_and(|line| line.pass(what).is_ok()));
        channel
    }

    /// Passes a descriptor of this process, whose memory the other one can read and write anyway.
    fn pass(&self, what: Passing<'_>) -> io::Result<()> {
        // As with the system's copies, a process that has become another user gives away nothing
        // more.
        if self.is_over() || !self.is_users() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        match what {
            Passing::Arena(arena) => self.pass_arena(arena),
            Passing::Events(..)
                if !self.channel.get().is_some_and(|channel| channel.is_shown()) =>
            {
                Err(io::ErrorKind::PermissionDenied.into())
            }
            // A process that does not read is told no more of them.
            Passing::Events(..) if self.unsaid.lock().is_full() => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            Passing::Events(number, events) => {
                let passed = events.map(EventFd::duplicate).transpose()?;
                self.say(Message::Events(number), passed)
            }
        }
    }

    fn pass_arena(&self, arena: u32) -> io::Result<()> {
        let number = u16::try_from(arena).map_err(|_| io::ErrorKind::InvalidInput)?;
        let own = |fd: BorrowedFd<'_>, len| Ok((fd.try_clone_to_owned()?, len));
        let (memory, len) = Heap::pass(arena, own)?;
        self.say(Message::Arena(Arena { number, len }), Some(PassedFd::from(memory)))
    }

    /// The other process passes an arena.
    fn got_arena(&self, arena: Arena, passed: Vec<OwnedFd>) -> Result<(), Over> {
        let channel = self.channel.get().filter(|channel| channel.may_map());
        let channel = channel.ok_or(Over::Unruly)?;
        // Without a descriptor, or memory for the mapping, accesses go by the ring.
        let Some(memory) = passed.into_iter().next().map(PassedFd::from) else { return Ok(()) };
        match MappedArena::map(memory.as_fd(), arena.len) {
            Ok(mapped) => channel.set_arena(arena.number.into(), mapped),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error.into()),
            Err(error) => tracing::debug!(%error, "memory of another process is not mapped"),
        }
        Ok(())
    }

    /// The other process passes a descriptor on which a program of it waits, or takes it back.
    fn got_events(&self, number: u32, passed: Vec<OwnedFd>) -> Result<(), Over> {
        let channel = self.channel.get().filter(|channel| channel.may_map());
        let channel = channel.ok_or(Over::Unruly)?;
        // Without a descriptor left here, the worker of the other process is woken.
        let alert = passed.into_iter().next().map(Alert::from_peer).transpose()?;
        channel.set_alert(number, alert);
        Ok(())
    }

    /// Ends soon, unless another connection moves until then.
    fn rest(&self) {
        self.later(IDLE, |line| {
            if line.channel.get().is_some_and(|channel| channel.is_used()) {
                // The last one to leave has it called again.
            } else if line.asked.lock().is_empty() {
                line.end();
            } else {
                line.rest();
            }
        });
    }

    /// Calls `what` after a while, unless the line is over by then.
    fn later(&self, pause: Duration, what: impl FnOnce(&Self) + Send + 'static) {
        let Some(worker) = self.worker.upgrade() else { return };
        let unless_over = move |line: &Self| {
            if !line.is_over() {
                what(line);
            }
        };
        worker.after(pause, &self.itself, unless_over);
    }

    /// A process has connected by `socket`.
    pub(super) fn came(
        socket: SeqSocket,
        offers: Weak<dyn Offers>,
        worker: &Arc<Worker>,
    ) -> Result<Arc<Self>, Hindrance> {
        let user = check_user(&socket)?;
        iwarp_mem::afford().map_err(|_| Cause::Memory)?;
        let line = Self::new(socket, offers, worker, false, user);
        line.serve(worker)?;
        Ok(line)
    }

    fn new(
        socket: SeqSocket,
        offers: Weak<dyn Offers>,
        worker: &Arc<Worker>,
        asks: bool,
        user: u32,
    ) -> Arc<Self> {
        Arc::new_cyclic(|itself| Self {
            itself: Weak::clone(itself),
            socket,
            offers,
            worker: Arc::downgrade(worker),
            task: AtomicU64::new(0),
            showing: Mutex::default(),
            channel: OnceLock::new(),
            asked: Mutex::default(),
            unsaid: Mutex::new(Outbox::new(asks)),
            asks,
            user,
            proven: AtomicBool::new(false),
            over: AtomicBool::new(false),
        })
    }

    fn serve(self: &Arc<Self>, worker: &Worker) -> io::Result<()> {
        let fds = Descriptors::one(self.socket.as_fd());
        let task = worker.tasks().add(fds, Interest::READ, Arc::clone(self) as Arc<dyn Task>)?;
        self.task.store(task, Ordering::Release);
        if self.is_over() {
            // It ended before it had the number.
            worker.tasks().remove(task, fds);
        }
        Ok(())
    }

    /// True once the other process is gone, or does not keep to the rules.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// True if this process is the user still that it was when the line began. One that has become
    /// another trusts other processes; the connections that have moved go on.
    pub(super) fn is_users(&self) -> bool {
        own_users()[0] == self.user
    }

    /// True once the other process has told a secret that it knows by a connection.
    pub(super) fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    /// Asks the other process to move the connection to a new ring.
    pub(super) fn ask(
        &self,
        secret: u64,
        crc: bool,
        end: &Arc<dyn LocalEnd>,
    ) -> Result<(), Cannot> {
        if self.unsaid.lock().is_full() {
            return Err(Cannot::Yet);
        }
        Ok(self.ask_now(secret, crc, end).inspect_err(|_| self.rest())?)
    }

    fn ask_now(&self, secret: u64, crc: bool, end: &Arc<dyn LocalEnd>) -> Result<(), Hindrance> {
        let channel = self.channel.get().filter(|_| !self.is_over());
        let channel = channel.ok_or(Cause::BrokenOff)?;
        let ends = end.ends();
        let local = ends.local.ok_or(Cause::Ended)?;
        let slot = channel.take_slot(&end.waker()).ok_or(Cause::Full)?;
        let join = Join { slot, crc, secret, local, peer: ends.peer };
        let asked = self.ask_to_join(channel, join, end);
        // A connection that stays with TCP keeps no slot.
        Ok(asked.inspect_err(|_| channel.free_slot(slot, &end.waker()))?)
    }

    fn ask_to_join(
        &self,
        channel: &Arc<Channel>,
        join: Join,
        end: &Arc<dyn LocalEnd>,
    ) -> io::Result<()> {
        let (ring, memory) = Ring::create(ROOM)?;
        self.asked.lock().try_reserve(1).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let Join { slot, crc, .. } = join;
        // Before the peer has it: the peer may send by it at once, and leave.
        end.move_to(Way { ring: Arc::new(ring), channel: Arc::clone(channel), slot })?;
        let weak = Arc::downgrade(end);
        {
            // The questions go out in the order in which they are noted here.
            let mut asked = self.asked.lock();
            asked.push_back(Asked { slot, end: weak, crc });
            let said = self.say(Message::Join(join), Some(memory));
            if said.is_err() {
                asked.pop_back();
            }
            said
        }
    }

    /// The other process is gone, or does not keep to the rules.
    pub(super) fn end(&self) {
        if self.over.swap(true, Ordering::SeqCst) {
            return;
        }
        if let (Some(worker), task @ 1..) =
            (self.worker.upgrade(), self.task.load(Ordering::Acquire))
        {
            worker.tasks().remove(task, Descriptors::one(self.socket.as_fd()));
        }
        let asked = std::mem::take(&mut *self.asked.lock());
        for end in asked.iter().filter_map(|asked| asked.end.upgrade()) {
            // The peer may not know yet that it is over.
            end.decline(Cause::BrokenOff.into());
        }
        if let Some(channel) = self.channel.get() {
            channel.end();
        }
    }

    /// Takes the next message; false when none is there, or the answers to those before wait.
    fn read(&self) -> Result<bool, Over> {
        if !self.unsaid.lock().lets_read() {
            return Ok(false);
        }
        // One byte more than a message, so that a longer one is found out.
        let mut room = [0; LEN + 1];
        let (len, passed) = match self.socket.recv_passed(&mut room) {
            Ok((0, _)) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            received => received?,
        };
        match room.get(..len).and_then(Message::decode).ok_or(Over::Unruly)? {
            Message::Hello => self.greeted(passed)?,
            Message::Reach(reach) => self.reached(reach, passed)?,
            Message::Join(join) => self.asked(&join, passed)?,
            Message::Answer(answer) => self.answered(&answer)?,
            Message::Arena(arena) => self.got_arena(arena, passed)?,
            Message::Events(number) => self.got_events(number, passed)?,
        }
        Ok(true)
    }

    fn greeted(&self, mut passed: Vec<OwnedFd>) -> Result<(), Over> {
        let page = if passed.len() > 3 { passed.pop() } else { None };
        let [memory, peers, own] = passed.try_into().map_err(|passed: Vec<_>| {
            // The system passes fewer where this process has no descriptor left.
            if passed.len() < 3 { Cause::Descriptors.into() } else { Over::Unruly }
        })?;
        let marks = Marks::join(memory, peers, own)?;
        self.channel.set(self.channel(marks)).map_err(|_| Over::Unruly)?;
        let offers = self.offers.upgrade();
        let Some((page, (showing, own))) = page.zip(offers.and_then(|offers| offers.show())) else {
            return Ok(());
        };
        let reach = self.reach_peer(&page);
        let shows = reach != Reach::No;
        *self.showing.lock() = shows.then_some(showing);
        self.say(Message::Reach(reach), shows.then_some(own))?;
        Ok(())
    }

    /// The other process says how far it reaches into this one's memory.
    fn reached(&self, reach: Reach, mut passed: Vec<OwnedFd>) -> Result<(), Over> {
        // It says so once.
        let showing = self.showing.lock().take();
        let (Some(showing), Some(channel)) = (showing, self.channel.get()) else {
            return Err(Over::Unruly);
        };
        let mut both = match reach {
            Reach::No => false,
            Reach::Reads(read) if Some(read) == showing.secret() => true,
            Reach::Reads(_) => return Err(Over::Unruly),
            Reach::Maps => self.shares(),
        };
        if let Some(page) = passed.pop() {
            let own = if both { self.reach_peer(&page) } else { Reach::No };
            both &= own != Reach::No;
            self.say(Message::Reach(own), None)?;
        }
        if both {
            channel.show(showing);
        }
        Ok(())
    }

    fn shares(&self) -> bool {
        self.offers.upgrade().is_some_and(|offers| offers.shares())
    }

    /// Tries to read the memory of the other process, which says by the page that it lives.
    fn reach_peer(&self, page: &OwnedFd) -> Reach {
        let Some(channel) = self.channel.get() else { return Reach::No };
        let peer = PeerMemory::open(&self.socket, page.as_fd());
        let probed = |peer: PeerMemory| peer.probe().map(|read| (peer, read));
        let error = match peer.and_then(|peer| probed(peer).map_err(io::Error::other)) {
            Ok((peer, read)) => {
                let process = peer.process();
                channel.set_peer(peer);
                report!(fate INFO,
                    process,
                    "reads the memory of another process by itself where that shows it"
                );
                return Reach::Reads(read);
            }
            Err(error) => error,
        };
        let mapped = self.shares().then(|| PeerMemory::of_page(page.as_fd())).and_then(Result::ok);
        if let Some(peer) = mapped {
            channel.set_peer(peer);
            report!(fate INFO, %error,
                "cannot read the memory of the other process, and maps what it shares"
            );
            return Reach::Maps;
        }
        report!(fate INFO, %error, "cannot read the memory of the other process: rings only");
        Reach::No
    }

    /// The other process asks to move a connection.
    fn asked(&self, join: &Join, passed: Vec<OwnedFd>) -> Result<(), Over> {
        let memory = passed.into_iter().next().map(PassedFd::from);
        let (Some(offers), Some(channel)) = (self.offers.upgrade(), self.channel.get()) else {
            return Err(Over::Unruly);
        };
        if self.asks {
            return Err(Over::Unruly);
        }
        let end = offers.take(join);
        let moved = match &end {
            Some(_) if !self.is_users() => Err(Cause::OtherUser.into()),
            Some(end) => {
                self.proven.store(true, Ordering::Relaxed);
                move_to(end, join, channel, memory.as_ref())
            }
            None => Err(Cause::Ended.into()),
        };
        let crc = offers.demands_crc();
        let taken = moved.map_err(Hindrance::code);
        let answered = self.say(Message::Answer(Answer { slot: join.slot, taken, crc }), None);
        match (end, moved) {
            (Some(end), Ok(())) => end.send_by_way(crc || join.crc),
            (Some(end), Err(why)) => end.stay(why),
            (None, _) => {}
        }
        Ok(answered?)
    }

    /// Says it now, or when the other process has read some of what it was told before.
    fn say(&self, message: Message, memory: Option<PassedFd>) -> io::Result<()> {
        let is_first = self.unsaid.lock().push(message, memory)?;
        if !is_first {
            return Ok(());
        }
        // An error is one of the socket: nothing more goes out.
        self.say_rest().inspect_err(|_| self.unsaid.lock().clear())
    }

    /// Goes on once descriptors can be passed again.
    fn say_later(&self) {
        self.later(SHORTAGE, |line| {
            if line.say_rest().is_err() {
                line.end();
            }
        });
    }

    /// Says what waits, and has the worker look for room if some of it waits still.
    fn say_rest(&self) -> io::Result<()> {
        let mut unsaid = self.unsaid.lock();
        let rest = unsaid.send(&self.socket)?;
        if rest == Rest::Later {
            self.say_later();
        }
        if let Some(interest) = unsaid.watches(rest)
            && let Some(worker) = self.worker.upgrade()
        {
            let fds = Descriptors::one(self.socket.as_fd());
            worker.tasks().update(self.task.load(Ordering::Acquire), fds, interest)?;
        }
        Ok(())
    }

    fn answered(&self, answer: &Answer) -> Result<(), Over> {
        let asked = self.asked.lock().pop_front();
        let asked = asked.filter(|asked| asked.slot == answer.slot);
        let Asked { end, crc, .. } = asked.ok_or(Over::Unruly)?;
        self.proven.store(true, Ordering::Relaxed);
        let Some(end) = end.upgrade() else { return Ok(()) };
        match answer.taken {
            Ok(()) => end.send_by_way(crc || answer.crc),
            Err(code) => {
                if let Some(channel) = self.channel.get() {
                    channel.free_slot(answer.slot, &end.waker());
                }
                end.stay(Hindrance::at_peer(code));
            }
        }
        Ok(())
    }
}

/// The process at the other end is of this user, whose number is the result.
pub(super) fn check_user(socket: &SeqSocket) -> Result<u32, Hindrance> {
    let [own, _] = own_users();
    if socket.peer_user()? != own {
        return Err(Cause::OtherUser.into());
    }
    if !is_known(own) {
        return Err(Cause::UnknownUsers.into());
    }
    Ok(own)
}

/// The end receives by the ring that its peer has made, and its slot wakes it.
fn move_to(
    end: &Arc<dyn LocalEnd>,
    join: &Join,
    channel: &Arc<Channel>,
    memory: Option<&PassedFd>,
) -> Result<(), Hindrance> {
    iwarp_mem::afford().map_err(|_| Cause::Memory)?;
    // As the two ends see them: otherwise something stands between them.
    let Ends { local, peer } = end.ends();
    let mirrored = local.map(canonical) == Some(canonical(join.peer))
        && canonical(peer) == canonical(join.local);
    if !mirrored {
        return Err(Cause::Relay.into());
    }
    // The system passes fewer where this process has no descriptor left.
    let memory = memory.ok_or(Cause::Descriptors)?;
    let ring = Ring::join(memory.as_fd(), ROOM)?;
    if !channel.set_slot(join.slot, &end.waker()) {
        return Err(Cause::BrokenOff.into());
    }
    Ok(end.move_to(Way { ring: Arc::new(ring), channel: Arc::clone(channel), slot: join.slot })?)
}

impl Task for Line {
    fn ready(&self, ready: Ready) {
        // A socket whose other end is closed tells that by the first message that goes out.
        let speaks = ready.writable || ready.hangup;
        self.go_on(if speaks { self.say_rest() } else { Ok(()) });
    }
}

impl Line {
    /// Takes in what the other process has said already.
    pub(super) fn listen(&self) {
        self.go_on(Ok(()));
    }

    /// Reads on, unless something went wrong before.
    fn go_on(&self, said: io::Result<()>) {
        if let Err(over) = said.map_err(Over::from).and_then(|()| self.read_on()) {
            over.tell();
            self.end();
        }
    }

    fn read_on(&self) -> Result<(), Over> {
        for _ in 0..BUDGET {
            if !self.read()? {
                break;
            }
        }
        Ok(())
    }
}
