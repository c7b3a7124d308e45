//! From the path that a program names to the path that is opened.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use crate::SHOWN;

const MAX: usize = libc::PATH_MAX as usize;

/// Where the tree is. A copy: programs that change their title overwrite the environment.
struct Tree {
    path: [u8; MAX],
    length: usize,
}

static TREE: OnceLock<Option<Tree>> = OnceLock::new();

/// Reads the environment before the program runs, while nothing else does.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        tree();
    }
    at_load
};

fn tree() -> Option<&'static Tree> {
    TREE.get_or_init(|| {
        // SAFETY: it has no requirements.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return None;
        }
        // SAFETY: the name ends with a NUL; before `main` nothing changes the environment.
        let value = unsafe { libc::getenv(c"IWARP_SYSFS".as_ptr()) };
        if value.is_null() {
            return None;
        }
        // SAFETY: `getenv` gives null or a string, which nothing changes before `main`.
        let value = unsafe { CStr::from_ptr(value) }.to_bytes();
        let mut path = [0; MAX];
        path.get_mut(..value.len())?.copy_from_slice(value);
        (value.first() == Some(&b'/')).then_some(Tree { path, length: value.len() })
    })
    .as_ref()
}

/// Gives `call` the path that stands for `named`: one in the tree, or `named` itself.
///
/// # Safety
///
/// `named` is null or a string, as its caller promised libc.
pub(crate) unsafe fn redirect<T>(named: *const c_char, call: impl Fn(*const c_char) -> T) -> T {
    let Some(tree) = tree().filter(|_| !named.is_null()) else { return call(named) };
    // SAFETY: not null, so it is a string.
    let path = unsafe { CStr::from_ptr(named) }.to_bytes();
    if SHOWN.iter().any(|shown| is_below(path, shown.as_bytes())) {
        in_tree(tree, path, call)
    } else {
        call(named)
    }
}

fn is_below(path: &[u8], directory: &[u8]) -> bool {
    let rest = path.strip_prefix(directory);
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

/// Apart from its caller, whose stack stays small: other calls come from anywhere.
#[inline(never)]
fn in_tree<T>(tree: &Tree, path: &[u8], call: impl Fn(*const c_char) -> T) -> T {
    // One octet more for the NUL; what is too long for libc is too long here.
    let mut buffer = [0; 2 * MAX + 1];
    let length = path.len().min(MAX);
    buffer[..tree.length].copy_from_slice(&tree.path[..tree.length]);
    buffer[tree.length..][..length].copy_from_slice(&path[..length]);
    call(buffer.as_ptr().cast())
}
