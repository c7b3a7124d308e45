// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ports that are down; completion queues, ids of the connection manager and calls that wait.

use super::Finding;
use crate::live::facts::{Call, CompletionQueue, Facts, Id};

pub(super) fn findings(before: &Facts, facts: &Facts) -> Vec<Finding> {
    let queues = facts.cq.iter().map(|cq| {
        let was = before.cq.iter().find(|was| was.number == cq.number);
        Finding {
            what: format!("completion queue {}", cq.number),
            reasons: of_queue(cq, was).into_iter().collect(),
            moves: was.is_none_or(|was| was.waiting != cq.waiting),
        }
    });
    let ids = facts.cm_id.iter().map(|id| Finding {
        what: match (id.local, id.peer) {
            (_, Some(peer)) => format!("id {} (peer {peer})", id.number),
            (Some(local), None) => format!("id {} (at {local})", id.number),
            _ => format!("id {}", id.number),
        },
        reasons: of_id(id).into_iter().collect(),
        moves: before.cm_id.iter().all(|was| was.number != id.number || was.state != id.state),
    });
    let calls = facts.call.iter().map(|call| Finding {
        what: "a call of the program".to_owned(),
        reasons: vec![format!("It waits: {}.", call.waits)],
        moves: before.call.iter().all(|was: &Call| was.number != call.number),
    });
    queues.chain(ids).chain(calls).collect()
}

/// Ports that are down on purpose.
pub(super) fn of_ports(pid: u32, facts: &Facts) -> Option<Finding> {
    facts.device.iter().any(|device| device.link == "down").then(|| Finding {
        what: "the ports of the process".to_owned(),
        reasons: vec![format!(
            "They are down on purpose: nothing passes until iwarp set {pid} link=up."
        )],
        moves: false,
    })
}

fn of_queue(cq: &CompletionQueue, was: Option<&CompletionQueue>) -> Option<String> {
    let CompletionQueue { waiting, depth, .. } = cq;
    if cq.overrun {
        return Some(format!(
            "It has overrun: more completed than its {depth} places hold, and completions are lost. \
             Make it as deep as the queues that complete to it."
        ));
    }
    if *waiting == 0 {
        return None;
    }
    let some = if *waiting == 1 {
        "1 completion waits".to_owned()
    } else {
        format!("{waiting} completions wait")
    };
    let polls = was.is_some_and(|was| was.polls != cq.polls);
    Some(match &cq.channel {
        _ if polls => format!("{some}: the program polls, and has not taken them."),
        None => format!("{some}, and the program does not poll (ibv_poll_cq)."),
        Some(channel) if channel.events > 0 => format!(
            "{some}; the event for them waits in the completion channel, and the program does not \
             take it (ibv_get_cq_event)."
        ),
        Some(_) if cq.armed == "no" => format!(
            "{some}, and the queue is not armed: the program takes no look, and no event comes. \
             Poll, arm (ibv_req_notify_cq), and poll once more before sleeping."
        ),
        Some(_) if cq.armed == "solicited" => {
            format!("{some}, none of a solicited message, and the queue is armed for these alone.")
        }
        Some(_) => format!(
            "{some}, and came before the queue was armed: no event comes for them. Poll once more \
             between arming and sleeping."
        ),
    })
}

fn of_id(id: &Id) -> Option<String> {
    let Id { state, .. } = id;
    Some(match &**state {
        "Connecting" => {
            "It connects, and the peer has not answered: the other program listens and \
                         has not accepted yet, or start-up stands still."
                .to_owned()
        }
        "Requested" => {
            "A peer asks for a connection, and the program has not accepted or rejected it \
             (rdma_accept)."
                .to_owned()
        }
        "Responded" => {
            "The peer has accepted, and the program has not gone on (rdma_establish).".to_owned()
        }
        _ => return None,
    })
}
