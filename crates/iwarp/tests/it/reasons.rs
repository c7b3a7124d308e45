// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reasons why sessions end, and how errors read.

use std::error::Error;
use std::io;
use std::thread;
use std::time::Duration;

use iwarp::cm::{ConnectError, StartupError};
use iwarp::{
    Ended, ModifyError, OpenError, PostError, QpState, RegisterError, TransitionError, WcStatus,
};
use iwarp_session::{Config, Failure, OperationError, Session};

use crate::common::DEADLINE;
use crate::common::sessions::pair;

#[test]
fn closing_ends_both_sides_in_good_order() {
    let (client, server) = pair(&Config::default());
    let (here, there) = (client.session.closed(), server.session.closed());
    assert_eq!(server.session.ended(), None);
    let there = there.wait_timeout(Duration::from_millis(1)).unwrap_err();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| there.wait_timeout(DEADLINE));
        client.session.close().wait().unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), Ended::Closed);
    });
    assert_eq!(here.wait_timeout(DEADLINE).unwrap(), Ended::Closed);
    assert_eq!(server.session.ended(), Some(Ended::Closed));
    assert_eq!(server.session.closed().wait(), Ended::Closed);
}

#[test]
fn a_message_without_a_receive_is_a_reason_in_words_at_both_ends() {
    let (client, server) = pair(&Config::default());
    drop(client.session.send_inline(b"nobody asked"));
    let Ended::Fault(fault) = server.session.closed().wait_timeout(DEADLINE).unwrap() else {
        panic!("the server breaks it off");
    };
    let Ended::Terminated(told) = client.session.closed().wait_timeout(DEADLINE).unwrap() else {
        panic!("the client is told");
    };
    assert_eq!(fault, told);
    let ended = client.session.ended().unwrap();
    assert!(ended.to_string().contains(&told.to_string()), "{ended}");
    // It stays what it was.
    drop(server.session);
    assert_eq!(client.session.ended(), Some(ended));
}

#[test]
fn a_reset_is_a_loss_for_the_peer() {
    let (client, server) = pair(&Config::default());
    client.session.abort();
    assert_eq!(client.session.closed().wait_timeout(DEADLINE).unwrap(), Ended::Closed);
    assert_eq!(server.session.closed().wait_timeout(DEADLINE).unwrap(), Ended::Lost);
}

#[test]
fn a_wait_for_the_end_outlives_the_session() {
    let (client, server) = pair(&Config::default());
    let closed = client.session.closed();
    drop(client);
    assert_eq!(closed.wait_timeout(DEADLINE).unwrap(), Ended::Closed);
    drop(server);
}

#[cfg(feature = "tokio")]
#[test]
fn tasks_are_told_of_the_end() {
    crate::tasks::run(async {
        let (client, server) = pair(&Config::default());
        let told: Vec<_> = (0..8).map(|_| tokio::spawn(server.session.closed())).collect();
        let dropped = tokio::spawn(client.session.closed());
        tokio::task::yield_now().await;
        drop(client.session.send_inline(b"nobody asked"));
        for told in told {
            assert!(matches!(told.await.unwrap(), Ended::Fault(_)));
        }
        assert!(matches!(dropped.await.unwrap(), Ended::Terminated(_)));
    });
}

/// No error says again what its source says.
fn reads_well(error: &(dyn Error + 'static)) {
    let mut texts = vec![error.to_string()];
    let mut next = error.source();
    while let Some(source) = next {
        let text = source.to_string();
        assert!(texts.iter().all(|before| !before.contains(&text)), "{text:?} behind {texts:?}");
        texts.push(text);
        next = source.source();
    }
}

#[test]
fn no_error_repeats_its_source() {
    let (client, server) = pair(&Config::default());
    drop(client.session.send_inline(b"nobody asked"));
    let ended = server.session.closed().wait_timeout(DEADLINE).unwrap();
    let system = || io::Error::other(StartupError::Timeout);
    let operations = || {
        [
            OperationError::Disconnected,
            OperationError::Ended(ended),
            OperationError::Timeout,
            OperationError::QueueFull,
            OperationError::InlineTooLong,
            OperationError::OutsideGrant,
            OperationError::OtherDomain,
            OperationError::Failed(WcStatus::RemoteAccess),
            OperationError::Refused(PostError::OutOfMemory),
            OperationError::Memory(RegisterError::Exhausted),
            OperationError::Wait(system()),
        ]
    };
    for error in operations() {
        reads_well(&error);
    }
    for error in operations() {
        let text = error.to_string();
        let io = io::Error::from(error);
        reads_well(&io);
        // All of it is kept.
        assert!(text.ends_with(&io.to_string()), "{text:?} became {io:?}");
    }
    // Words, and no names of the code's.
    let failed = OperationError::Failed(WcStatus::RemoteAccess).to_string();
    assert!(failed.contains("remote access error (check key, address"), "{failed}");
    let transition = TransitionError { from: QpState::Reset, to: QpState::Rts }.to_string();
    assert_eq!(transition, "queue pair cannot go from RESET to RTS");
    let failure: Failure = server.session.send_inline(b"late").wait().unwrap_err();
    reads_well(&failure);
    assert_eq!(io::Error::from(failure).kind(), io::ErrorKind::NotConnected);
    reads_well(&ConnectError::Unreachable(system()));
    reads_well(&ConnectError::Startup(StartupError::Closed));
    reads_well(&ConnectError::Terms(iwarp::cm::StartupFault::NoMatchingRtr));
    reads_well(&ConnectError::Io(system()));
    reads_well(&ConnectError::Timeout);
    reads_well(&OpenError::System(system()));
    reads_well(&ModifyError::System(system()));
    reads_well(&ended);
    reads_well(&io::Error::from(ConnectError::Startup(StartupError::Closed)));
    reads_well(&io::Error::from(RegisterError::NotMapped));
    // A question mark is enough, in functions that return either.
    fn both(session: &Session) -> io::Result<()> {
        session.send_inline(b"late").wait()?;
        drop(session.reserve().wait()?);
        Ok(())
    }
    assert!(both(&server.session).is_err());
}
