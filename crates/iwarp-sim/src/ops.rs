// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work requests that programs post: legal ones, and, where the run allows it, wrong ones.

use iwarp_proto::qp::Extensions;
use iwarp_types::{
    Access, AtomicOp, Bind, Payload, PostError, QpState, Receive, RecvRequest, SendOp, SendRequest,
    Sge, Stag, TaggedOffset,
};

use crate::bank::{Role, WINDOWS};
use crate::choice::{Choices, pattern};
use crate::model::{Posted, PostedRecv, Verdict};
use crate::net::{Net, WindowUse};

/// Receives that an end keeps in a shared queue at most.
const POOL: usize = 64;

/// A scatter/gather list of `length` octets somewhere in a region, oddly cut.
fn list(
    net: &Net,
    e: usize,
    role: Role,
    length: u32,
    most: usize,
    rng: &mut Choices<'_>,
) -> Vec<Sge> {
    let bank = net.ends[e].host.bank.borrow();
    let region = bank.region(role);
    let (size, base, lkey) = (region.octets.len() as u64, region.base, region.stag);
    let mut left = length.min(size as u32);
    let mut sges = Vec::new();
    while sges.len() < most {
        let room = most - sges.len();
        if left == 0 && !(length == 0 && rng.one_in(3) || rng.one_in(6)) {
            break;
        }
        let take = match room {
            1 => left,
            _ if rng.one_in(2) => left,
            _ => rng.below(u64::from(left) + 1) as u32,
        };
        let slack = size - u64::from(take);
        let mut at = rng.below(slack + 1);
        if rng.one_in(2) {
            at &= !7;
        }
        sges.push(Sge { addr: base + at, length: take, lkey });
        left -= take;
    }
    sges
}

/// Posts a receive to end `e`.
pub fn post_recv(net: &mut Net, e: usize, rng: &mut Choices<'_>) -> Verdict {
    let length = match rng.below(4) {
        0 => rng.length(200 * 1024),
        1 => 4096,
        2 => 200 * 1024,
        _ => rng.below(600) as u32,
    };
    let config = *net.ends[e].qp.borrow().config();
    let number = net.ends[e].host.model.borrow().recvs.len();
    let length = length.max(net.ends[e].debts.get(&number).copied().unwrap_or(0));
    let sges = list(net, e, Role::Private, length, config.max_recv_sge, rng);
    let end = &mut net.ends[e];
    let wr_id = end.next_wr;
    end.next_wr += 1;
    if config.shared_receive {
        if end.host.pool.borrow().len() < POOL {
            let receive = Receive { wr_id, sges: sges.clone() };
            end.host.pool.borrow_mut().push_back(receive);
            end.host.model.borrow_mut().recvs.push(PostedRecv { wr_id, sges });
            end.debts.remove(&number);
        }
        return net.look_again(e);
    }
    let result = end.qp.borrow_mut().post_recv(&RecvRequest::new(wr_id, &sges));
    match result {
        Ok(()) => {
            end.host.model.borrow_mut().recvs.push(PostedRecv { wr_id, sges });
            end.debts.remove(&number);
            net.look_again(e)?;
            net.poll(e)
        }
        Err(PostError::QueueFull) if end.qp.borrow().outstanding().1 == config.max_recv_wr => {
            Ok(())
        }
        Err(error) => Err(format!("receive refused: {error}")),
    }
}

/// A place in the peer's memory for `length` octets: STag, offset, and the length that fits.
fn remote(
    net: &Net,
    e: usize,
    length: u32,
    writes: bool,
    rng: &mut Choices<'_>,
) -> (Stag, TaggedOffset, u32) {
    let peer = &net.ends[1 - e];
    let bank = peer.host.bank.borrow();
    let number = rng.below(2 * WINDOWS as u64) as usize;
    if let Some(WindowUse::Granted(start, size)) = peer.windows.get(number) {
        let length = u64::from(length).min(*size);
        let at = start + rng.below(size - length + 1);
        return (bank.memory.windows[number].stag, TaggedOffset(at), length as u32);
    }
    let role = match rng.below(4) {
        0 => Role::Counters,
        1 if !writes => Role::Source,
        _ => Role::Target,
    };
    let region = bank.region(role);
    let size = region.octets.len() as u64;
    let length = u64::from(length).min(size);
    let at = match rng.below(8) {
        0 => 0,
        1 => size - length,
        _ => rng.below(size - length + 1),
    };
    (region.stag, TaggedOffset(region.base + at), length as u32)
}

/// The operations of RFC 7306 and our own that end `e` may do without ending the stream: whether
/// Atomics may be posted, whether Immediate Data, which has to arrive, and whether that of Sends.
fn extensions(net: &Net, e: usize) -> [bool; 3] {
    let of = |e: usize| net.ends[e].qp.borrow().config().extensions;
    match (of(e), of(1 - e)) {
        (Extensions::Ask, Extensions::Ask) => [true; 3],
        (Extensions::Assume, Extensions::Refuse) => [false; 3],
        (Extensions::Assume, _) => [true, true, false],
        _ => [true, false, false],
    }
}

/// Posts a send work request to end `e`. `wrong`: it may be one that ends the stream.
pub fn post_send(net: &mut Net, e: usize, rng: &mut Choices<'_>, wrong: bool) -> Verdict {
    let Some(mut posted) = choose(net, e, rng, wrong) else { return Ok(()) };
    let end = &mut net.ends[e];
    posted.wr_id = end.next_wr;
    end.next_wr += 1;
    let changes_something = matches!(
        posted.op,
        SendOp::Bind(_) | SendOp::LocalInvalidate(_) | SendOp::Read { invalidate: Some(_), .. }
    );
    posted.signaled = changes_something || !rng.one_in(4);
    posted.fence |= rng.one_in(10);
    let payload = match &posted.inline {
        Some(octets) => Payload::Inline(octets),
        None => Payload::Sges(&posted.sges),
    };
    let mut request = SendRequest::new(posted.wr_id, posted.op, payload);
    (request.signaled, request.fence) = (posted.signaled, posted.fence);
    let max = end.qp.borrow().config().max_send_wr;
    let result = end.qp.borrow_mut().post_send(&request);
    match result {
        Ok(()) => {
            note_use(net, e, &posted);
            net.ends[e].host.model.borrow_mut().sends.push(posted);
            net.poll(e)
        }
        Err(PostError::QueueFull) if end.qp.borrow().outstanding().0 == max => Ok(()),
        Err(PostError::WrongState) if end.qp.borrow().state() == QpState::Reset => Ok(()),
        Err(error) => Err(format!("{:?} refused: {error}", posted.op)),
    }
}

/// Posts a zero-length Write to end `e`: a responder waits for a first FPDU.
pub fn post_nothing(net: &mut Net, e: usize) -> Verdict {
    let end = &mut net.ends[e];
    let op = SendOp::Write { stag: Stag(1), to: TaggedOffset(0) };
    let mut posted = Posted::new(end.next_wr, op, Vec::new(), None);
    posted.signaled = false;
    end.next_wr += 1;
    let request = SendRequest::new(posted.wr_id, op, Payload::Sges(&[]));
    if end.is_up() && end.qp.borrow_mut().post_send(&request).is_ok() {
        end.host.model.borrow_mut().sends.push(posted);
    }
    net.poll(e)
}

/// The effect of a request that was taken on windows, regions and the peer's receives.
fn note_use(net: &mut Net, e: usize, posted: &Posted) {
    match posted.op {
        SendOp::Send { invalidate, .. } => {
            use_receive(net, e, posted.length);
            let peer = &mut net.ends[1 - e];
            let bank = peer.host.bank.borrow();
            let number =
                bank.memory.windows.iter().position(|window| Some(window.stag) == invalidate);
            if let Some(number) = number {
                peer.windows[number] = WindowUse::GivenUp;
            }
        }
        SendOp::Immediate { .. } | SendOp::WriteImmediate { .. } => use_receive(net, e, 0),
        SendOp::SendImmediate { .. } => use_receive(net, e, posted.length),
        SendOp::Bind(bind) => {
            let number = bind.window.index() as usize % 64;
            net.ends[e].windows[number] = WindowUse::Changing;
        }
        SendOp::LocalInvalidate(stag) => {
            let end = &mut net.ends[e];
            let bank = end.host.bank.borrow();
            if bank.region(Role::Passing).stag == stag {
                end.passing[0] = true;
            }
            if let Some(number) = bank.memory.windows.iter().position(|window| window.stag == stag)
            {
                end.windows[number] = WindowUse::Changing;
            }
        }
        SendOp::Read { invalidate: Some(_), .. } => net.ends[e].passing[1] = true,
        _ => {}
    }
}

/// The peer's next receive is for a message of `length` octets, whether it is there or not.
fn use_receive(net: &mut Net, e: usize, length: u32) {
    let number = net.ends[e].receives_used;
    net.ends[e].receives_used += 1;
    let peer = &mut net.ends[1 - e];
    let posted = peer.host.model.borrow().recvs.len();
    if number >= posted {
        peer.debts.insert(number, length);
    }
}

fn choose(net: &Net, e: usize, rng: &mut Choices<'_>, wrong: bool) -> Option<Posted> {
    let end = &net.ends[e];
    let config = *end.qp.borrow().config();
    let most = config.max_send_sge;
    let [atomics, immediates, own] = extensions(net, e);
    let reads = end.terms.ord > 0;
    let odd = wrong && rng.one_in(12);
    let mut posted = match rng.below(25) {
        0..=4 => {
            let (stag, to, length) = remote(net, e, rng.length(200 * 1024), true, rng);
            let (sges, inline) = source(net, e, length, rng);
            Posted::new(0, SendOp::Write { stag, to }, sges, inline)
        }
        5..=8 => {
            let solicited = rng.one_in(3);
            let room = receive_room(net, e, odd)?;
            let (sges, inline) = source(net, e, rng.length(200 * 1024).min(room), rng);
            Posted::new(0, SendOp::Send { solicited, invalidate: None }, sges, inline)
        }
        9 | 18 | 19 => {
            let number = rng.below(WINDOWS as u64) as usize;
            let peer = &net.ends[1 - e];
            if !matches!(peer.windows[number], WindowUse::Granted(..)) && !odd {
                return None;
            }
            let room = receive_room(net, e, odd)?;
            let invalidate = Some(peer.host.bank.borrow().memory.windows[number].stag);
            let (sges, inline) = source(net, e, rng.length(2000).min(room), rng);
            let solicited = rng.one_in(2);
            let op = SendOp::Send { solicited, invalidate };
            // Reads of the window have to be done when it goes.
            let mut posted = Posted::new(0, op, sges, inline);
            posted.fence = true;
            posted
        }
        10 if immediates || odd => {
            receive_room(net, e, odd)?;
            let data = rng.word().to_be_bytes();
            let op = SendOp::Immediate { solicited: rng.one_in(2), data };
            Posted::new(0, op, Vec::new(), None)
        }
        22 if own || odd => {
            let room = receive_room(net, e, odd)?;
            let (sges, inline) = source(net, e, rng.length(200 * 1024).min(room), rng);
            let (solicited, data) = (rng.one_in(3), (rng.word() as u32).to_be_bytes());
            Posted::new(0, SendOp::SendImmediate { solicited, data }, sges, inline)
        }
        23 | 24 if immediates || odd => {
            receive_room(net, e, odd)?;
            let (stag, to, length) = remote(net, e, rng.length(200 * 1024), true, rng);
            let (sges, inline) = source(net, e, length, rng);
            let (solicited, data) = (rng.one_in(3), (rng.word() as u32).to_be_bytes());
            Posted::new(0, SendOp::WriteImmediate { stag, to, solicited, data }, sges, inline)
        }
        11 | 12 if reads || odd => {
            let (stag, to, length) = remote(net, e, rng.length(200 * 1024), false, rng);
            let role = rng.pick(&[Role::Private, Role::Private, Role::Target]);
            let sges = list(net, e, role, length, most, rng);
            Posted::new(0, SendOp::Read { stag, to, invalidate: None }, sges, None)
        }
        13 if reads && !end.passing[1] => {
            let (stag, to, length) = remote(net, e, rng.length(20_000), false, rng);
            let sges = list(net, e, Role::PassingSink, length, most, rng);
            let own = end.host.bank.borrow().region(Role::PassingSink).stag;
            let op = SendOp::Read { stag, to, invalidate: Some(own) };
            // No other request may use the sink when it goes.
            Posted::new(0, op, sges, None)
        }
        14 if (reads && atomics) || odd => {
            let peer = &net.ends[1 - e];
            let bank = peer.host.bank.borrow();
            let region = bank.region(Role::Counters);
            let to = TaggedOffset(region.base + 8 * rng.below(region.octets.len() as u64 / 8));
            let stag = region.stag;
            drop(bank);
            let word = |rng: &mut Choices<'_>| match rng.below(3) {
                0 => rng.word(),
                1 => u64::MAX,
                _ => 1 << rng.below(64),
            };
            let op = if rng.one_in(2) {
                SendOp::Atomic {
                    stag,
                    to,
                    op: AtomicOp::FetchAdd { add: word(rng), mask: word(rng) },
                }
            } else {
                SendOp::Atomic {
                    stag,
                    to,
                    op: AtomicOp::CompareSwap {
                        compare: word(rng),
                        compare_mask: if rng.one_in(2) { 0 } else { word(rng) },
                        swap: word(rng),
                        swap_mask: word(rng),
                    },
                }
            };
            let sges = list(net, e, Role::Private, 8, most, rng);
            Posted::new(0, op, sges, None)
        }
        15 | 20 | 21 => {
            let number = rng.below(WINDOWS as u64) as usize;
            if end.windows[number] != WindowUse::Free && !odd {
                return None;
            }
            let bank = end.host.bank.borrow();
            let (window, region) = (bank.memory.windows[number].stag, bank.region(Role::Target));
            let length = rng.range(1, 5000);
            let zero = if rng.one_in(2) { Access::ZERO_BASED } else { Access::LOCAL_READ };
            let bind = Bind {
                window,
                new_stag: Stag((window.0 & !0xff) | (window.0.wrapping_add(1) & 0xff)),
                region: region.stag,
                addr: region.base + rng.below(region.octets.len() as u64 - length + 1),
                length,
                access: Access::REMOTE_READ | Access::REMOTE_WRITE | zero,
            };
            Posted::new(0, SendOp::Bind(bind), Vec::new(), None)
        }
        16 if !end.passing[0] => {
            let stag = end.host.bank.borrow().region(Role::Passing).stag;
            Posted::new(0, SendOp::LocalInvalidate(stag), Vec::new(), None)
        }
        17 if odd => {
            let stag = end.host.bank.borrow().memory.windows[0].stag;
            Posted::new(0, SendOp::LocalInvalidate(stag), Vec::new(), None)
        }
        _ => return None,
    };
    if odd {
        spoil(net, e, &mut posted, rng);
    }
    Some(posted)
}

/// Messages that may be on their way to receives that are not there.
const DEBTS: usize = 12;
/// The most that they may be.
const DEBT: u32 = 40_000;

/// Room in the receive that the next message will consume; `None` when there is none and the peer
/// does not let messages wait.
fn receive_room(net: &Net, e: usize, odd: bool) -> Option<u32> {
    let peer = &net.ends[1 - e];
    let model = peer.host.model.borrow();
    let waits = model.parks && peer.debts.len() < DEBTS;
    match model.recvs.get(net.ends[e].receives_used) {
        Some(recv) if !odd => Some(recv.capacity().min(1 << 30) as u32),
        None if !odd => waits.then_some(DEBT),
        _ => Some(u32::MAX),
    }
}

/// Local octets for a Send or Write: elements, or inline.
fn source(net: &Net, e: usize, length: u32, rng: &mut Choices<'_>) -> (Vec<Sge>, Option<Vec<u8>>) {
    let end = &net.ends[e];
    let config = *end.qp.borrow().config();
    if length as usize <= config.max_inline && rng.one_in(3) {
        let mut octets = vec![0; length as usize];
        pattern(rng.word(), &mut octets);
        return (Vec::new(), Some(octets));
    }
    let role = if !end.passing[0] && rng.one_in(2) { Role::Passing } else { Role::Source };
    (list(net, e, role, length, config.max_send_sge, rng), None)
}

/// Makes a request wrong in one way.
fn spoil(net: &Net, e: usize, posted: &mut Posted, rng: &mut Choices<'_>) {
    let how = rng.below(8);
    let foreign = net.ends[1 - e].host.bank.borrow().region(Role::Foreign).stag;
    let private = net.ends[1 - e].host.bank.borrow().region(Role::Private).stag;
    if let SendOp::Write { stag, to }
    | SendOp::WriteImmediate { stag, to, .. }
    | SendOp::Read { stag, to, .. }
    | SendOp::Atomic { stag, to, .. } = &mut posted.op
    {
        match how {
            0 => *stag = Stag(stag.0 ^ 1),
            1 => *stag = Stag(rng.word() as u32),
            2 => *stag = foreign,
            3 => *stag = private,
            4 => *to = TaggedOffset(u64::MAX - rng.below(3)),
            5 => *to = to.advanced(crate::bank::LARGE as u64),
            6 => *to = TaggedOffset(to.0.wrapping_sub(1)),
            _ => {}
        }
    }
    if let Some(sge) = posted.sges.first_mut()
        && how == 7
    {
        match rng.below(3) {
            0 => sge.lkey = Stag(sge.lkey.0 ^ 0x80),
            1 => sge.addr = sge.addr.wrapping_add(crate::bank::LARGE as u64 * 2),
            _ => sge.addr = u64::MAX - 1,
        }
    }
}
