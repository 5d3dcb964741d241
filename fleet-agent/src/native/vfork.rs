//! A process that uses our memory until its program begins.
//!
//! A copy of this daemon costs more the more memory it has, and is thrown away at once when the
//! program begins. So the process is given a stack of its own and otherwise uses the memory of
//! ours, while the thread that begins it is held by the kernel; that is what `vfork` does and
//! `posix_spawn` is made of. No library begins one so inside a control group. There is nothing to
//! write it in but the machine's own words, so on other machines it is a copy as before.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;
use std::ffi::c_void;

/// How large its stack is, in bytes. What it does until its program begins needs a fraction of it.
const STACK: usize = 64 * 1024;

/// What the kernel is asked for, beside what is asked for a copy: `CLONE_VM` and `CLONE_VFORK`.
pub(super) const FLAGS: u64 = 0x100 | 0x4000;

/// Whether processes can be begun so on this machine.
pub(super) const IS_SUPPORTED: bool = cfg!(target_arch = "x86_64");

/// What the process does, with what it is argument.
pub(super) type ChildMain = unsafe extern "C" fn(*const c_void) -> !;

/// A stack, to be named in the request by its [`stack_range`].
pub(super) fn stack() -> Vec<u8> {
    Vec::with_capacity(STACK)
}

/// The lowest address of a stack, and how many bytes are used of it: it begins at a multiple of 16
/// bytes, wherever it lies, as functions rely on.
pub(super) fn stack_range(stack: &mut Vec<u8>) -> (u64, u64) {
    let (lowest, size) = (stack.as_mut_ptr() as u64, stack.capacity() as u64);
    (lowest, size - (lowest + size) % 16)
}

/// The kernel's answer to `clone3` with that request: a process, or an error below zero.
///
/// # Safety
///
/// The request is one of `clone3` of that size, with [`FLAGS`] and a stack by its [`stack_range`]. The
/// main makes system calls alone, and ends in a program or in the end of the process. All that it
/// uses stays there and is not changed until this returns.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "no library begins a process so inside a control group")]
pub(super) unsafe fn clone3(
    request: *const c_void,
    size: usize,
    main: ChildMain,
    argument: *const c_void,
) -> isize {
    let answer: isize;
    // SAFETY: as promised above. In the new process, where the answer is 0, the stack is another
    // one, so nothing of this function is used there but the two registers, and it never returns.
    // That stack is empty and begins at a multiple of 16 bytes, as a call has to find it.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") nix::libc::SYS_clone3 as isize => answer,
            in("rdi") request,
            in("rsi") size,
            in("r12") main,
            in("r13") argument,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    answer
}

/// There are no words for it here, so nobody asks.
///
/// # Safety
///
/// It does nothing.
#[cfg(not(target_arch = "x86_64"))]
#[expect(unsafe_code, reason = "it is unsafe elsewhere")]
pub(super) unsafe fn clone3(_: *const c_void, _: usize, _: ChildMain, _: *const c_void) -> isize {
    -(nix::libc::ENOSYS as isize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_begins_where_a_function_has_to_find_it() {
        for odd in 0..32 {
            let mut stack = Vec::with_capacity(STACK + odd);
            let (lowest, size) = stack_range(&mut stack);
            assert_eq!((lowest, (lowest + size) % 16), (stack.as_ptr() as u64, 0));
            let bytes = stack.capacity() as u64;
            assert!((bytes - 15..=bytes).contains(&size), "{size} of {bytes}");
        }
    }
}
