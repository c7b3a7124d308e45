//! Memory is registered; what a peer may do with it depends on the key.

use std::sync::Arc;

use iwarp::{Access, Buffer};
use iwarp_learn::{Failure, open_device};

fn main() -> Result<(), Failure> {
    let device = open_device()?;
    let pd = device.alloc_pd();
    let board = Arc::new(Buffer::try_new(4096)?);

    // The bytes twice: once for all peers, once for this program alone.
    let open = pd.register(Arc::clone(&board), Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let shut = pd.register(Arc::clone(&board), Access::LOCAL_WRITE)?;
    println!("registered {} bytes, and again {} bytes", open.len(), shut.len());
    println!("the keys are {}", if open.rkey() == shut.rkey() { "equal" } else { "different" });

    // The program copies in and out, as peers may change the bytes at any moment.
    board.write_at(0, b"as ever");
    let mut bytes = [0; 7];
    board.read_at(0, &mut bytes);
    println!("the program writes and reads it {}", str::from_utf8(&bytes)?);

    // Remote write permission requires local write permission.
    let bad = pd.register(board, Access::REMOTE_WRITE);
    let outcome = if bad.is_ok() { "registered" } else { "refused" };
    println!("for peers to write, but not for us: {outcome}");

    // From now on the keys open nothing.
    drop((open, shut));
    println!("deregistered");
    Ok(())
}
