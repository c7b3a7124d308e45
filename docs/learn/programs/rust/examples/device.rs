//! Which RDMA device is there, and what can it do?

use iwarp_learn::{Failure, open_device};

fn main() -> Result<(), Failure> {
    let device = open_device()?;
    let can = device.attributes();
    println!("device {}", device.name());
    println!("  port 1: {}", if device.gids()?.is_empty() { "down" } else { "active" });
    println!("  atomics: {}", if can.max_qp_rd_atom > 0 { "yes" } else { "no" });
    println!("  Reads under way at a time: {}", can.max_qp_rd_atom);
    Ok(())
}
