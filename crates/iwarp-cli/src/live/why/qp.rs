// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs that wait.

use iwarp_kit::size;

use super::Finding;
use super::peers::{Peer, Peers};
use crate::live::facts::{Facts, Oldest, QueuePair, Stream};

/// The finding about a queue pair of `facts`, which was asked about before.
pub(super) fn finding(qp: &QueuePair, before: &Facts, facts: &Facts, peers: &Peers<'_>) -> Finding {
    let was = before.qp.iter().find(|was| (was.number, was.send_cq) == (qp.number, qp.send_cq));
    let moves = was.is_none_or(|was| progress(was) != progress(qp));
    let peer = peers.of(qp);
    Finding {
        what: title(qp, peer.as_ref()),
        reasons: reasons(qp, facts, peer.as_ref(), peers),
        moves,
    }
}

/// The part of it that changes while work is done.
fn progress(qp: &QueuePair) -> impl PartialEq {
    let direct = qp.stream.as_ref().map(|stream| (stream.direct_reads, stream.direct_writes));
    (qp.ended, qp.arrivals, qp.sends, qp.receives, qp.state.clone(), direct)
}

fn title(qp: &QueuePair, peer: Option<&Peer<'_>>) -> String {
    let mut title = format!("queue pair {} ({}", qp.number, qp.r#type.to_uppercase());
    if let Some(Stream { peer: Some(peer), path, .. }) = &qp.stream {
        title += &format!(", {} to {peer}", if path == "memory" { "shared memory" } else { "TCP" });
    } else if let Some(packets) = qp.packets.as_ref().filter(|packets| packets.peer_qp > 0) {
        title += &format!(", RoCE v2 to {} queue pair {}", packets.peer, packets.peer_qp);
    }
    if let Some(Peer { process, .. }) = peer {
        title += &format!(", process {} {}", process.pid, process.name);
    }
    title + ")"
}

fn reasons(
    qp: &QueuePair,
    facts: &Facts,
    peer: Option<&Peer<'_>>,
    peers: &Peers<'_>,
) -> Vec<String> {
    let mut reasons = Vec::new();
    match &*qp.state {
        "Err" => {
            reasons.push(
                "It is in the error state: its connection has ended, and all requests complete as \
                 flushed. IWARP_LOG=info says why a connection ends."
                    .to_owned(),
            );
            return reasons;
        }
        "Reset" | "Init" => {
            reasons.push(format!(
                "It is not connected (state {}): the program has not connected it yet.",
                qp.state.to_uppercase()
            ));
            return reasons;
        }
        _ => {}
    }
    if qp.r#type != "Ud" && !qp.connected {
        reasons.push(format!(
            "It looks for its peer (state {}): the other program has not brought its queue pair to \
             RTR, or is not there.",
            qp.state.to_uppercase()
        ));
    }
    if qp.parked {
        reasons.push(lacks_receives(qp, facts));
    }
    if let Some(oldest) = &qp.oldest {
        reasons.push(oldest_waits(qp, oldest, peer, peers));
        if oldest.awaits != "transmission" && qp.stream.as_ref().is_some_and(|stream| stream.full) {
            reasons.push(format!("Requests behind it are not sent. {}", unsent(qp, peer, peers)));
        }
    }
    match qp.held.as_deref() {
        Some("fence") => reasons.push(
            "The next request has a fence: it begins once the Reads and Atomics before it are \
             answered."
                .to_owned(),
        ),
        Some("read depth") => reasons.push(
            "The next request is a Read or Atomic, and as many of these are under way as may be \
             (max_rd_atomic, initiator_depth)."
                .to_owned(),
        ),
        _ => {}
    }
    if reasons.is_empty() {
        reasons.extend(idle(qp, peer, peers));
    }
    reasons
}

/// A message waits for a receive of this end.
fn lacks_receives(qp: &QueuePair, facts: &Facts) -> String {
    match qp.srq {
        Some(number) => {
            let left =
                facts.srq.iter().find(|srq| srq.number == number).map_or(0, |srq| srq.posted);
            format!(
                "A message of the peer waits for a receive: shared receive queue {number} has \
                 {left}. Post some (ibv_post_srq_recv)."
            )
        }
        None => "A message of the peer waits for a receive, and none is posted. Post some \
                 (ibv_post_recv)."
            .to_owned(),
    }
}

fn oldest_waits(
    qp: &QueuePair,
    oldest: &Oldest,
    peer: Option<&Peer<'_>>,
    peers: &Peers<'_>,
) -> String {
    let Oldest { op, wr_id, bytes, tries, .. } = oldest;
    let length = size::show(usize::try_from(*bytes).unwrap_or(usize::MAX));
    let more = match qp.sends {
        0 | 1 => String::new(),
        all => format!(", and {} behind it", all - 1),
    };
    let what = format!("{op} of {length}, wr_id {wr_id:#x}{more}");
    match &*oldest.awaits {
        "receive" => format!(
            "{what}: the peer has no receive for it (RNR NAK, {tries} so far). {}",
            peer_says(qp, peer, peers, "Its program has to post some.")
        ),
        "transmission" => format!("{what}: not sent. {}", unsent(qp, peer, peers)),
        "answer" if *tries > 0 => format!(
            "{what}: its answer does not come; asked {} times. The peer, or the network, does not \
             answer.",
            tries + 1
        ),
        "answer" => format!("{what}: its answer has not come. {}", unanswered(qp, peer, peers)),
        _ if *tries > 0 => format!(
            "{what}: sent {} times, and not acknowledged. The peer, or the network, does not answer.",
            tries + 1
        ),
        _ => format!(
            "{what}: sent, and the peer has not taken it in. {}",
            unanswered(qp, peer, peers)
        ),
    }
}

/// The reason why bytes are not sent.
fn unsent(qp: &QueuePair, peer: Option<&Peer<'_>>, peers: &Peers<'_>) -> String {
    let Some(stream) = qp.stream.as_ref().filter(|_| qp.connected) else {
        return "There is no connection yet.".to_owned();
    };
    if !stream.full {
        return "Its turn comes.".to_owned();
    }
    let full = match &*stream.path {
        "memory" => "The memory between the two is full",
        _ => "TCP takes no more",
    };
    let probes = match stream.window_probes {
        Some(probes) if probes > 0 => {
            format!(", and the peer's window is closed ({probes} probes)")
        }
        _ => String::new(),
    };
    let says =
        peer_says(qp, peer, peers, "The other process does not read: it is stopped, or stuck.");
    format!("{full}{probes}. {says}")
}

/// The reason why a request that was sent does not end.
fn unanswered(qp: &QueuePair, peer: Option<&Peer<'_>>, peers: &Peers<'_>) -> String {
    if let Some(stream) = &qp.stream {
        let lost = stream.retransmits.unwrap_or(0);
        if lost > 0 && stream.unacknowledged.unwrap_or(0) > 0 {
            let since = stream
                .last_ack_ms
                .map_or_else(String::new, |ms| format!(" for {:.1} s", ms as f64 / 1000.0));
            return format!(
                "TCP has sent the bytes again {lost} times and hears nothing{since}: the peer's \
                 host is gone, or the network between."
            );
        }
    }
    peer_says(
        qp,
        peer,
        peers,
        "TCP has handed it over, so the other process is there: its program has posted no receive \
         for it, or the process is stopped. Ask there (iwarp why).",
    )
}

/// The facts that are known of the peer's process, or `unknown`.
fn peer_says(qp: &QueuePair, peer: Option<&Peer<'_>>, peers: &Peers<'_>, unknown: &str) -> String {
    let Some(Peer { process, qp }) = peer else {
        return match peers.stopped(qp) {
            Some(process) => format!("Process {} ({}) is stopped.", process.pid, process.name),
            None => unknown.to_owned(),
        };
    };
    let (pid, name) = (process.pid, &process.name);
    if process.is_stopped {
        return format!("Process {pid} ({name}) is stopped.");
    }
    if qp.parked {
        return format!("Process {pid} ({name}) has it, and has posted no receive for it.");
    }
    if qp.stalled {
        return format!("Process {pid} ({name}) reads no more until it has posted receives.");
    }
    format!("The other end is process {pid} ({name}). {unknown}")
}

/// The state of a queue pair that has nothing under way.
fn idle(qp: &QueuePair, peer: Option<&Peer<'_>>, peers: &Peers<'_>) -> Option<String> {
    let others = peer.map(|peer| (peer.process.pid, &peer.process.name, peer.qp));
    if qp.receives == 0 && qp.srq.is_none() {
        return None;
    }
    let receives = match qp.receives {
        0 => "Receives of its shared queue wait".to_owned(),
        1 => "One receive waits".to_owned(),
        all => format!("{all} receives wait"),
    };
    let from = match others {
        Some((pid, name, other)) if other.sends == 0 => format!(
            "process {pid} ({name}) has sent all that it has posted: both ends wait for each other's \
             messages."
        ),
        Some((pid, name, other)) => {
            format!("process {pid} ({name}) has {} requests under way.", other.sends)
        }
        None => match peers.stopped(qp) {
            Some(process) => format!("process {} ({}) is stopped.", process.pid, process.name),
            None => "nothing is under way from it, as far as this end knows.".to_owned(),
        },
    };
    Some(format!("{receives} for messages of the peer: {from}"))
}
