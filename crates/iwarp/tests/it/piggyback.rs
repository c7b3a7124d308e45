// SPDX-License-Identifier: MIT OR Apache-2.0

//! The personality of a RoCE device: what the peer is told of a message goes out with the answer to
//! it, and alone where there is none.

use std::os::fd::{AsFd, AsRawFd};

use iwarp::{Options, Personality};

use crate::common::{End, Setup, sockets, until};

const MESSAGE: u64 = 1;
const STRETCH: u64 = 10;

/// `from` sends a message, which `to` receives.
fn message(from: &End, to: &End) {
    to.post_recv(MESSAGE, &[]);
    from.send(MESSAGE, &[]);
    assert_eq!(to.received().wr_id, MESSAGE);
}

/// The server answers what it has received, the client answers that, and so on: each answer is sent
/// before the completion of what it answers.
fn answer_each_other(client: &End, server: &End, rounds: u64) {
    for _ in 0..rounds {
        message(server, client);
        client.sent();
        message(client, server);
        server.sent();
    }
}

/// Segments with data that both ends of the connection have sent (`tcpi_data_segs_out`).
fn segments(client: &End) -> u64 {
    const DATA_SEGS_OUT: usize = 156;
    let port = client.connection.peer_addr().unwrap().port();
    let sent = sockets::connected(port).into_iter().map(|socket| {
        let mut info = [0_u8; 256];
        let mut len = info.len() as libc::socklen_t;
        let place = info.as_mut_ptr().cast();
        let fd = socket.as_fd().as_raw_fd();
        // SAFETY: the place has as many bytes as `len` says.
        let error =
            unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, place, &mut len) };
        assert_eq!(error, 0, "{}", std::io::Error::last_os_error());
        u64::from(u32::from_ne_bytes(info[DATA_SEGS_OUT..][..4].try_into().unwrap()))
    });
    sent.sum()
}

/// An acknowledgement by itself would be a second segment for each message. A machine that is busy
/// with other things makes some, and the library then holds none back for a long time: one stretch
/// without, of one connection, is enough. When the server, which has always answered, does nothing
/// more, its worker tells the client.
#[test]
fn an_acknowledgement_goes_out_with_the_answer_and_alone_where_there_is_none() {
    let roce = Options::new().personality(Personality::Roce);
    let (client, server) = until("a stretch of one segment for each message", || {
        let (client, server) = Setup::both(&roce).connect();
        message(&client, &server);
        // The habit of the program is learned first.
        answer_each_other(&client, &server, STRETCH);
        let before = segments(&client);
        answer_each_other(&client, &server, STRETCH);
        (segments(&client) - before <= 2 * STRETCH).then_some((client, server))
    });
    for _ in 0..20 {
        assert_eq!(client.sent().wr_id, MESSAGE);
        message(&client, &server);
        answer_each_other(&client, &server, 100);
    }
}
