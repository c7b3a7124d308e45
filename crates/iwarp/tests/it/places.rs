//! Waiting instead of being refused: for blocks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use iwarp::Access;
use iwarp::session::{BlockPool, Config, OperationError, RemoteGrant};

use crate::common::sessions::pair;
use crate::common::{DEADLINE, until};

#[test]
fn threads_wait_for_blocks_in_turn() {
    let (client, _server) = pair(&Config::default());
    let pool = BlockPool::new(&client.pd, 64, 2).unwrap();
    let (one, two) = (pool.take().wait().unwrap(), pool.take().wait().unwrap());
    let late = pool.take().wait_timeout(Duration::from_millis(1));
    assert!(matches!(late, Err(OperationError::Timeout)));
    let taken = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    drop(pool.take().wait_timeout(DEADLINE).unwrap());
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        drop((one, two));
    });
    assert_eq!((taken.into_inner(), pool.available()), (800, 2));
}

/// Nobody else completes the operations that have the blocks.
#[test]
fn a_thread_that_waits_for_a_block_looks_after_what_has_it() {
    let (client, server) = pair(&Config::default());
    let pool = BlockPool::new(&client.pd, 4096, 2).unwrap();
    let table = server.session.expose(4096, Access::REMOTE_READ).unwrap();
    let grant = RemoteGrant::from_octets(&table.grant().to_octets());
    for _ in 0..200 {
        let block = pool.take().wait_timeout(DEADLINE).unwrap();
        drop(client.session.read(&grant, 0, block));
    }
    until("the blocks", || (pool.available() == 2).then_some(()));
}
