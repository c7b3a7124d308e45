// SPDX-License-Identifier: MIT OR Apache-2.0

//! Readiness in each state, beside what poll(2) says of a TCP socket: `data/poll-table.csv`.

use std::collections::BTreeSet;

use iwarp_sockets::stream::{Condition, Connected, Readiness};

use crate::support::rows;

const IDLE: Connected = Connected {
    data: false,
    room: true,
    read_shut: false,
    write_shut: false,
    read_over: false,
    peer_closed: false,
};

/// The state of a row of the table.
fn condition(row: u32) -> Option<Condition> {
    let closed = Connected { read_over: true, peer_closed: true, ..IDLE };
    Some(match row {
        1 => Condition::Unconnected,
        2 => Condition::Listening { waiting: false },
        3 => Condition::Listening { waiting: true },
        4 | 9 | 16 => Condition::Gone { untold: true },
        5 => Condition::Connected(IDLE),
        6 => Condition::Connected(Connected { data: true, ..IDLE }),
        7 => Condition::Connected(Connected { data: true, ..closed }),
        8 => Condition::Connected(closed),
        10 => Condition::Connected(Connected { read_over: true, ..IDLE }),
        11 => Condition::Connected(Connected { read_over: true, write_shut: true, ..IDLE }),
        12 => Condition::Connected(Connected { write_shut: true, ..IDLE }),
        13 => Condition::Connected(Connected { read_shut: true, ..IDLE }),
        14 => Condition::Connected(Connected { read_shut: true, write_shut: true, ..IDLE }),
        15 => Condition::Connected(Connected { read_shut: true, write_shut: true, ..closed }),
        17 => Condition::Gone { untold: false },
        18 => Condition::Connected(Connected { room: false, ..IDLE }),
        // Rsockets have no urgent data; the rest is about descriptors.
        _ => return None,
    })
}

fn events(readiness: Readiness) -> BTreeSet<&'static str> {
    let Readiness { readable, writable, read_closed, hangup, error } = readiness;
    let named = [
        (readable, "IN"),
        (writable, "OUT"),
        (read_closed, "RDHUP"),
        (hangup, "HUP"),
        (error, "ERR"),
    ];
    named.into_iter().filter_map(|(is_set, name)| is_set.then_some(name)).collect()
}

#[test]
fn readiness_is_that_of_tcp() {
    let mut seen = 0;
    for row in rows("poll-table.csv") {
        let Some(condition) = condition(row[0].parse().unwrap()) else { continue };
        let expected: BTreeSet<&str> = row[3].split('|').filter(|name| *name != "-").collect();
        assert_eq!(events(condition.readiness()), expected, "row {}: {}", row[0], row[2]);
        seen += 1;
    }
    assert_eq!(seen, 18);
}
