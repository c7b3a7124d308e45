// SPDX-License-Identifier: MIT OR Apache-2.0

//! A program of two ends, by lot: bursts of requests of all kinds, after each of which all is
//! quiet, and at the end of some programs a request that must fail. Its outcome is determined: a
//! Read comes before a Write to its bytes only where a fence makes the Write wait.

use std::ops::Range;

use iwarp::Access;

use super::mixed::Lots;

/// Regions that each end exposes, and windows beside them.
pub const REGIONS: usize = 3;
/// Bytes of a region.
pub const REGION: usize = 96 << 10;
/// Bytes of the longest message to a receive.
pub const MESSAGE: usize = 20 << 10;

/// The memory of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// The library's, which peers may map.
    Library,
    /// The program's.
    Program,
    /// The library's, of another protection domain.
    OtherDomain,
}

#[derive(Clone, Copy, Debug)]
pub struct Exposed {
    pub shape: Shape,
    pub access: Access,
}

impl Exposed {
    /// True if the peer's queue pair has that right there.
    pub fn grants(&self, right: Access) -> bool {
        self.shape != Shape::OtherDomain && self.access.contains(right)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Write,
    WriteImmediate,
    Read,
    Add,
    Swap,
    Send,
    SendImmediate,
}

impl Kind {
    /// The right that it asks for.
    const fn right(self) -> Option<Access> {
        match self {
            Self::Write | Self::WriteImmediate => Some(Access::REMOTE_WRITE),
            Self::Read => Some(Access::REMOTE_READ),
            Self::Add | Self::Swap => Some(Access::REMOTE_ATOMIC),
            Self::Send | Self::SendImmediate => None,
        }
    }

    /// True if it uses a receive of the peer's.
    pub const fn takes_receive(self) -> bool {
        matches!(self, Self::WriteImmediate | Self::Send | Self::SendImmediate)
    }

    /// True if an answer has to come.
    pub const fn is_answered(self) -> bool {
        matches!(self, Self::Read | Self::Add | Self::Swap)
    }
}

/// The memory of the peer's that a request names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Region(usize),
    /// The window, of type 2, to the middle of region 0.
    Window,
}

/// The part of region 0 that the window opens.
pub const OPEN: Range<usize> = 8 << 10..72 << 10;

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub kind: Kind,
    pub target: Target,
    /// In the region.
    pub offset: usize,
    pub len: usize,
    /// Elements.
    pub pieces: usize,
    pub inline: bool,
    pub signaled: bool,
    pub fence: bool,
    pub solicited: bool,
    /// A Send invalidates the peer's window.
    pub invalidates: bool,
    pub wrong: Option<Wrong>,
}

/// The defect of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// Another key than the region has.
    Key,
    /// The last byte lies behind the region, or the open part of it.
    Beyond,
    /// The region does not grant it.
    Right,
    /// The region belongs to another protection domain.
    Domain,
    /// The region has been deregistered.
    Withdrawn,
    /// The window has been invalidated.
    Closed,
    /// An Atomic at an odd address.
    Misaligned,
    /// A message that is longer than its receive.
    TooLong,
    /// A message for which there is no receive.
    NoReceive,
}

const WRONGS: [Wrong; 9] = [
    Wrong::Key,
    Wrong::Beyond,
    Wrong::Right,
    Wrong::Domain,
    Wrong::Withdrawn,
    Wrong::Closed,
    Wrong::Misaligned,
    Wrong::TooLong,
    Wrong::NoReceive,
];

/// The requests of both ends, posted together.
#[derive(Clone, Debug)]
pub struct Burst {
    /// Regions that their owners register anew before.
    pub renewed: [Option<usize>; 2],
    pub requests: [Vec<Request>; 2],
    /// Each end posts a list, rather than one request after the other.
    pub as_list: bool,
    /// The end that polls alone until its requests have completed.
    pub polls_first: Option<usize>,
    /// Receives are posted after the requests that need them.
    pub late: bool,
    /// The end that disconnects behind its requests.
    pub leaves: Option<usize>,
}

#[derive(Clone, Debug)]
pub struct Script {
    pub exposed: [[Exposed; REGIONS]; 2],
    pub bursts: Vec<Burst>,
}

struct Writer {
    lots: Lots,
    exposed: [[Exposed; REGIONS]; 2],
    /// The windows that are still open.
    open: [bool; 2],
    /// Receives may come late.
    waits: bool,
}

impl Script {
    /// `waits`: a message waits for its receive.
    pub fn new(seed: u64, waits: bool) -> Self {
        let mut lots = Lots(seed);
        let exposed = [(); 2].map(|()| std::array::from_fn(|at| exposed(&mut lots, at)));
        let bursts = 1 + lots.below(12);
        let mut writer = Writer { lots, exposed, open: [true; 2], waits };
        let mut bursts: Vec<_> = (0..bursts).map(|_| writer.burst()).collect();
        match writer.lots.below(3) {
            0 => {}
            // The end of such a connection takes a second.
            1 if waits && !writer.chance(16) => {}
            1 => bursts.push(writer.departure()),
            _ => bursts.extend(writer.fault()),
        }
        Self { exposed, bursts }
    }
}

/// The first region grants all.
fn exposed(lots: &mut Lots, at: usize) -> Exposed {
    let rights = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
    let granted = rights.into_iter().filter(|_| at == 0 || lots.below(4) > 0);
    let access = granted.fold(Access::LOCAL_WRITE | Access::MW_BIND, |all, right| all | right);
    let shape = match lots.below(8) {
        0 if at > 0 => Shape::OtherDomain,
        0..4 => Shape::Program,
        _ => Shape::Library,
    };
    Exposed { shape, access }
}

impl Writer {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.lots.below(all.len() as u64) as usize]
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.lots.below(one_in) == 0
    }

    fn burst(&mut self) -> Burst {
        let both = self.chance(2);
        let alone = self.lots.below(2) as usize;
        let requests = [0, 1].map(|side| match both || side == alone {
            true => self.requests(side),
            false => Vec::new(),
        });
        let renewed = [(); 2].map(|()| self.chance(6).then(|| 1 + self.lots.below(2) as usize));
        Burst {
            renewed,
            requests,
            as_list: self.chance(2),
            polls_first: self.chance(3).then_some(alone),
            late: self.waits && self.chance(4),
            leaves: None,
        }
    }

    /// One end posts Writes and messages, and disconnects.
    fn departure(&mut self) -> Burst {
        let mut burst = self.one_sided();
        let side = usize::from(burst.requests[0].is_empty());
        burst.requests[side].retain(|request| !request.kind.is_answered());
        burst.leaves = Some(side);
        burst
    }

    /// One end posts some requests, of which one is wrong; `None` if there is no way to be.
    fn fault(&mut self) -> Option<Burst> {
        let were_open = self.open;
        let mut burst = self.one_sided();
        let side = usize::from(burst.requests[0].is_empty());
        let wrong = self.one_of(&WRONGS);
        // The one that closes a window may stand behind it.
        let is_closed = !were_open[1 - side];
        let mut request = self.wrong(side, wrong, is_closed)?;
        let requests = &mut burst.requests[side];
        let at = self.lots.below(requests.len() as u64) as usize;
        // An answer that is on its way when the fault is found may be given up.
        request.fence = requests[..at].iter().any(|before| before.kind.is_answered());
        requests.insert(at, request);
        // The queue pair may take no more once the fault is known.
        burst.as_list = true;
        if matches!(wrong, Wrong::Withdrawn | Wrong::Domain) {
            let Target::Region(region) = request.target else { unreachable!() };
            requests.retain(|request| {
                request.wrong.is_some()
                    || request.kind.right().is_none()
                    || request.target != Target::Region(region)
            });
        }
        Some(burst)
    }

    fn one_sided(&mut self) -> Burst {
        let mut burst = self.burst();
        let side = self.lots.below(2) as usize;
        burst.requests[1 - side].clear();
        if burst.requests[side].is_empty() {
            burst.requests[side] = self.requests(side);
        }
        Burst { renewed: [None; 2], late: false, polls_first: None, ..burst }
    }

    fn requests(&mut self, side: usize) -> Vec<Request> {
        let count = 1 + self.lots.below(8);
        let mut read: Vec<(usize, Range<usize>)> = Vec::new();
        let mut requests = Vec::new();
        for _ in 0..count {
            let mut request = self.request(side);
            let (region, range) = request.range();
            if request.kind.right().is_some() {
                let meets = |(other, bytes): &(usize, Range<usize>)| {
                    *other == region && bytes.start < range.end && range.start < bytes.end
                };
                request.fence |= request.kind != Kind::Read && read.iter().any(meets);
            }
            if request.fence {
                read.clear();
            }
            if request.kind.is_answered() {
                read.push((region, range));
            }
            requests.push(request);
        }
        requests
    }

    fn kind(&mut self) -> Kind {
        self.one_of(&[
            Kind::Write,
            Kind::Write,
            Kind::Write,
            Kind::WriteImmediate,
            Kind::Read,
            Kind::Read,
            Kind::Add,
            Kind::Swap,
            Kind::Send,
            Kind::Send,
            Kind::SendImmediate,
        ])
    }

    fn length(&mut self) -> usize {
        let most = self.one_of(&[1, 8, 64, 64, 1000, 4096, 20_000, 70_000]);
        self.lots.below(most + 1) as usize
    }

    /// The regions of the peer's that may be used so.
    fn targets(&self, side: usize, right: Access) -> Vec<Target> {
        let exposed = self.exposed[1 - side].iter().enumerate();
        let fit = exposed.filter(|(_, exposed)| exposed.grants(right));
        let window = self.open[1 - side].then_some(Target::Window);
        fit.map(|(at, _)| Target::Region(at)).chain(window).collect()
    }

    fn request(&mut self, side: usize) -> Request {
        let kind = self.kind();
        let mut request = self.request_of(kind);
        if let Some(right) = kind.right() {
            let targets = self.targets(side, right);
            let target = self.one_of(&targets);
            request = self.placed(request, target);
        } else if kind == Kind::Send && self.open[1 - side] && self.chance(12) {
            (self.open[1 - side], request.target) = (false, Target::Window);
            // A Read through the window may not have been answered.
            (request.invalidates, request.fence) = (true, true);
        }
        request
    }

    fn request_of(&mut self, kind: Kind) -> Request {
        let longest = if kind.right().is_none() { MESSAGE } else { usize::MAX };
        let len = if matches!(kind, Kind::Add | Kind::Swap) { 8 } else { self.length() };
        let len = len.min(longest);
        let inline = !kind.is_answered() && len <= 64 && self.chance(2);
        Request {
            kind,
            target: Target::Region(0),
            offset: 0,
            len,
            pieces: if len < 8 || inline || len == 8 {
                1
            } else {
                self.one_of(&[1, 1, 1, 2, 3, 6])
            },
            inline,
            signaled: self.chance(2),
            fence: self.chance(10),
            solicited: self.chance(4),
            invalidates: false,
            wrong: None,
        }
    }

    /// A request somewhere in that memory.
    fn placed(&mut self, mut request: Request, target: Target) -> Request {
        let all = target.bytes();
        request.target = target;
        request.len = request.len.min(all.len());
        request.offset = all.start + self.lots.below((all.len() - request.len + 1) as u64) as usize;
        if matches!(request.kind, Kind::Add | Kind::Swap) {
            request.offset &= !7;
        }
        request
    }

    fn wrong(&mut self, side: usize, wrong: Wrong, is_closed: bool) -> Option<Request> {
        let of_message = matches!(wrong, Wrong::TooLong | Wrong::NoReceive);
        let kind = match wrong {
            Wrong::Misaligned => Kind::Add,
            _ if of_message => Kind::Send,
            _ => self.one_of(&[Kind::Write, Kind::Read, Kind::Add]),
        };
        let mut request = self.request_of(kind);
        request.wrong = Some(wrong);
        // A request for no bytes need not be right.
        request.len = request.len.max(1);
        let Some(right) = kind.right() else {
            if wrong == Wrong::TooLong {
                (request.len, request.inline) = (MESSAGE + 1, false);
            }
            return (wrong == Wrong::TooLong || !self.waits).then_some(request);
        };
        let exposed = self.exposed[1 - side].iter().enumerate();
        let region = |fit: &dyn Fn(&Exposed) -> bool| {
            exposed.clone().skip(1).find(|(_, it)| fit(it)).map(|(at, _)| Target::Region(at))
        };
        let target = match wrong {
            Wrong::Closed => is_closed.then_some(Target::Window)?,
            Wrong::Domain => region(&|it| it.shape == Shape::OtherDomain)?,
            Wrong::Right => region(&|it| it.shape != Shape::OtherDomain && !it.grants(right))?,
            Wrong::Withdrawn => region(&|it| it.grants(right))?,
            _ => Target::Region(0),
        };
        request = self.placed(request, target);
        match wrong {
            Wrong::Beyond => request.offset = target.bytes().end + 1 - request.len,
            Wrong::Misaligned => request.offset += 1 + self.lots.below(7) as usize,
            _ => {}
        }
        if matches!(kind, Kind::Add) && wrong == Wrong::Beyond {
            request.offset = target.bytes().end;
        }
        Some(request)
    }
}

impl Target {
    /// The bytes of its region.
    const fn bytes(self) -> Range<usize> {
        match self {
            Self::Region(_) => 0..REGION,
            Self::Window => OPEN,
        }
    }

    /// The region.
    pub const fn region(self) -> usize {
        match self {
            Self::Region(region) => region,
            Self::Window => 0,
        }
    }
}

impl Request {
    fn range(&self) -> (usize, Range<usize>) {
        (self.target.region(), self.offset..self.offset + self.len)
    }
}
