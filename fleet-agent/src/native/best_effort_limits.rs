//! What a process may not have in full, and then has as much of as it may, as systemd gives it.
//!
//! All of it runs in the child, so it makes system calls alone.

use rustix::io::{Errno, Result};
use rustix::process::{
    Resource, Rlimit, getpriority_process, getrlimit, setpriority_process, setrlimit,
};

/// The nice level that nobody is kept from.
const LEAST_URGENT: i32 = 19;

/// Sets a limit of this process, as high as it may be if that is not so high.
pub(super) fn set_limit(resource: Resource, wanted: Rlimit) -> Result<()> {
    match setrlimit(resource, wanted) {
        Err(Errno::PERM) => {}
        done => return done,
    }
    let present = getrlimit(resource);
    // Without a bound it is not the bound that is in the way.
    let most = present.maximum.ok_or(Errno::PERM)?;
    let closest = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    let limit = Rlimit { current: closest(wanted.current), maximum: closest(wanted.maximum) };
    if limit == present { Ok(()) } else { setrlimit(resource, limit) }
}

/// Sets the nice level of this process, as urgent as it may be if that is not so urgent.
pub(super) fn set_nice(wanted: i32) -> Result<()> {
    let refused = match setpriority_process(None, wanted) {
        Err(refused @ (Errno::PERM | Errno::ACCESS)) => refused,
        done => return done,
    };
    let present = getpriority_process(None)?;
    if wanted > present {
        // Anybody may be less urgent, so it is not the level that is in the way.
        return Err(refused);
    }
    let most_urgent = most_urgent(getrlimit(Resource::Nice).current);
    if present > most_urgent { setpriority_process(None, most_urgent) } else { Ok(()) }
}

/// The most urgent nice level that a limit allows.
fn most_urgent(limit: Option<u64>) -> i32 {
    let steps = limit.and_then(|limit| i32::try_from(limit).ok()).unwrap_or(i32::MAX);
    LEAST_URGENT + 1 - steps.clamp(1, 40)
}

#[cfg(test)]
mod tests {
    use rustix::process::{Uid, geteuid};
    use rustix::thread::set_thread_res_uid;

    use super::*;

    /// The levels are those of this thread, which gives its rights up alone.
    #[test]
    fn who_may_not_be_so_urgent_is_as_urgent_as_it_may_be() {
        let before = getrlimit(Resource::Nice);
        // Where that cannot be had, the limit as it is counts.
        let maximum = before.maximum.map(|most| most.max(22));
        let raised = setrlimit(Resource::Nice, Rlimit { current: Some(22), maximum });
        let levels = std::thread::spawn(|| {
            if geteuid().is_root() {
                let nobody = Uid::from_raw(65534);
                set_thread_res_uid(nobody, nobody, nobody).expect("root may be anybody");
            }
            let allowed = most_urgent(getrlimit(Resource::Nice).current);
            let present = getpriority_process(None).expect("it has one");
            let set = set_nice(-5).and_then(|()| getpriority_process(None));
            (set, (-5).max(present.min(allowed)))
        });
        let (set, closest) = levels.join().expect("it ends");
        if raised.is_ok() {
            setrlimit(Resource::Nice, before).expect("it was so before");
        }
        assert_eq!(set, Ok(closest));
    }

    #[test]
    fn limits_of_nice_levels() {
        let levels = [Some(0), Some(1), Some(20), Some(40), Some(99), None].map(most_urgent);
        assert_eq!(levels, [19, 19, 0, -20, -20, -20]);
    }
}
