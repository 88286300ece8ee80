//! Device nodes of GPUs: hints for a machine without a usable OpenCL device.
//!
//! "No OpenCL" on a board often means that the user is not in the group `video`, or that the GPU's
//! driver package is not installed. Both can be seen in `/dev`.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

const MAKERS_MALI: &str =
    "libmali.so of the board's maker (Odroid: mali-fbdev or mali-x11; Rockchip: libmali)";
const MAKERS_POWERVR: &str = "libPVROCL.so of the board's maker";
const QUALCOMM: &str = "libOpenCL.so of Qualcomm's or the board's image (qcom-adreno)";
const VIVANTE: &str = "libOpenCL.so of the board's image (NXP: imx-gpu-viv)";
const NVIDIA: &str =
    "the driver's libnvidia-opencl.so.1 (nvidia-opencl-icd), with ocl-icd-libopencl1";
const NOUVEAU: &str = "NVIDIA's own driver, with nvidia-opencl-icd";
const TEGRA: &str = "NVIDIA has none for it; PoCL can use CUDA";
const VC4CL: &str = "VC4CL, built from its sources";
const ROCM: &str = "rocm-opencl-icd or mesa-opencl-icd, with ocl-icd-libopencl1";
const MESA: &str = "mesa-opencl-icd, with ocl-icd-libopencl1";
const PANFROST: &str =
    "mesa-opencl-icd with RUSTICL_ENABLE=panfrost, or the maker's libmali.so and kernel driver";
const V3D: &str = "mesa-opencl-icd with RUSTICL_ENABLE=v3d, where Mesa is new enough";
const ETNAVIV: &str = "mesa-opencl-icd with RUSTICL_ENABLE=etnaviv, where Mesa is new enough";
const FREEDRENO: &str = "mesa-opencl-icd with RUSTICL_ENABLE=freedreno";
const RADEONSI: &str = "mesa-opencl-icd with RUSTICL_ENABLE=radeonsi, or rocm-opencl-icd";
const INTEL: &str = "intel-opencl-icd, with ocl-icd-libopencl1";

/// Names of device nodes below `/dev` (`*` stands for a number), each with its GPU and the usual
/// source of that GPU's OpenCL library.
const NODES: [(&str, &str, &str); 10] = [
    ("mali*", "ARM Mali", MAKERS_MALI),
    ("kgsl-3d0", "Qualcomm Adreno", QUALCOMM),
    ("nvidia*", "NVIDIA", NVIDIA),
    ("nvhost-gpu", "NVIDIA Tegra", TEGRA),
    ("galcore", "Vivante", VIVANTE),
    ("vchiq", "VideoCore IV", VC4CL),
    ("pvrsrvkm", "PowerVR", MAKERS_POWERVR),
    ("pvr_sync", "PowerVR", MAKERS_POWERVR),
    ("kfd", "AMD", ROCM),
    ("dri/renderD*", "", MESA),
];

/// Linux drivers of render nodes, each with its GPU and the usual source of the OpenCL library.
const DRIVERS: [(&str, &str, &str); 12] = [
    ("panfrost", "ARM Mali", PANFROST),
    ("panthor", "ARM Mali", PANFROST),
    ("lima", "ARM Mali-4xx", "none, it cannot run OpenCL"),
    ("v3d", "VideoCore VI or VII", V3D),
    ("vc4", "VideoCore IV", VC4CL),
    ("msm", "Qualcomm Adreno", FREEDRENO),
    ("etnaviv", "Vivante", ETNAVIV),
    ("i915", "Intel", INTEL),
    ("xe", "Intel", INTEL),
    ("amdgpu", "AMD", RADEONSI),
    ("nouveau", "NVIDIA", NOUVEAU),
    ("nvidia", "NVIDIA", NVIDIA),
];

/// Returns a line for each GPU node of this machine that this process cannot open. `served` is true
/// if an OpenCL device is a GPU. If `served` is false, nodes that this process can open have lines
/// too.
pub(crate) fn nodes(served: bool) -> Vec<String> {
    // Opens the node as a driver would. The permissions alone do not decide: a container or a
    // service may be kept from devices.
    let open = |node: &Path| {
        fs::File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(node)
            .map(drop)
    };
    // Control characters are escaped, because the names of drivers and groups come from the system.
    let lines = nodes_of(Path::new("/"), served, open).into_iter();
    lines
        .map(|line| crate::escape::line(&line).into_owned())
        .collect()
}

fn nodes_of(root: &Path, served: bool, open: impl Fn(&Path) -> io::Result<()>) -> Vec<String> {
    let mut lines = Vec::new();
    for (pattern, gpu, library) in NODES {
        let (folder, pattern) = pattern.rsplit_once('/').unwrap_or(("", pattern));
        let folder = Path::new("dev").join(folder);
        let fits = |name: &str| match pattern.strip_suffix('*') {
            Some(start) => {
                let number = name.strip_prefix(start).unwrap_or_default();
                !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
            }
            None => name == pattern,
        };
        let entries = fs::read_dir(root.join(&folder))
            .into_iter()
            .flatten()
            .flatten();
        let mut names: Vec<String> = Vec::new();
        for name in entries
            .filter_map(|e| e.file_name().into_string().ok())
            .filter(|n| fits(n))
        {
            names.insert(names.partition_point(|n| *n < name), name);
        }
        for name in names {
            let driver =
                fs::read_link(root.join("sys/class/drm").join(&name).join("device/driver"));
            let driver = driver
                .ok()
                .and_then(|d| Some(d.file_name()?.to_str()?.to_string()));
            let known = driver
                .as_ref()
                .and_then(|d| DRIVERS.iter().find(|(name, ..)| name == d));
            let (gpu, library) = known.map_or((gpu, library), |&(_, gpu, library)| (gpu, library));
            let gpu = match (gpu, driver) {
                ("", None) => String::new(),
                ("", Some(driver)) => format!(" ({driver})"),
                (gpu, _) => format!(" ({gpu})"),
            };
            let node = root.join(&folder).join(&name);
            let place = format!("/{}{gpu}", folder.join(&name).display());
            match open(&node) {
                Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                    lines.push(format!(
                        "{place} is there, but this user may not open it: {}",
                        advice(root, &node)
                    ));
                }
                Err(e) => lines.push(format!("{place} is there, but cannot be opened: {e}")),
                Ok(()) if served => {}
                Ok(()) => lines.push(format!(
                    "{place} is there and may be opened, but no OpenCL library offers a GPU; its \
                     usual library: {library}"
                )),
            }
        }
    }
    lines
}

/// Returns advice on how the user gets access to a device node: by joining its group, if the group
/// may use the node, else by a udev rule.
fn advice(root: &Path, node: &Path) -> String {
    let Ok(about) = fs::metadata(node) else {
        return "it is gone".into();
    };
    let groups = fs::read_to_string(root.join("etc/group")).unwrap_or_default();
    let named = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (id.parse() == Ok(about.gid())).then(|| name.to_string())
    });
    let group = named.unwrap_or_else(|| about.gid().to_string());
    match about.mode() & 0o060 {
        // Users are never told to join root's group, because its members are as powerful as root.
        0o060 if about.gid() != 0 => format!(
            "it belongs to the group {group}; sudo usermod -aG {group} USER, then log in again (a \
             systemd service: SupplementaryGroups={group})"
        ),
        _ => format!(
            "mode {:03o}, group {group}; a udev rule gives it to a group: KERNEL==\"{}\", \
             GROUP=\"video\", MODE=\"0660\"",
            about.mode() & 0o777,
            node.file_name().unwrap_or_default().to_string_lossy()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    /// A folder that stands for `/`. Its nodes are plain files.
    struct Root {
        path: PathBuf,
    }

    impl Root {
        fn new(name: &str, nodes: &[(&str, u32)]) -> Root {
            let root =
                std::env::temp_dir().join(format!("mortonnet-nodes-{name}-{}", std::process::id()));
            for (node, mode) in nodes {
                let path = root.join("dev").join(node);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, "").unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
            }
            fs::create_dir_all(root.join("etc")).unwrap();
            // The files that the test creates belong to the group of the user who runs it.
            let gid = fs::metadata(&root).unwrap().gid();
            fs::write(
                root.join("etc/group"),
                format!("other:x:{}:\nthe-group:x:{gid}:a,b\n", gid + 1),
            )
            .unwrap();
            Root { path: root }
        }

        fn driver(&self, node: &str, driver: &str) {
            let device = self.path.join("sys/class/drm").join(node).join("device");
            fs::create_dir_all(&device).unwrap();
            symlink(
                format!("../../../bus/platform/drivers/{driver}"),
                device.join("driver"),
            )
            .unwrap();
        }

        fn lines(&self, served: bool, answer: Option<ErrorKind>) -> Vec<String> {
            nodes_of(&self.path, served, |_| {
                answer.map_or(Ok(()), |kind| Err(kind.into()))
            })
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.path);
        }
    }

    #[test]
    fn a_machine_without_a_gpu_has_nothing_to_say() {
        let others = [
            "null",
            "malicious",
            "nvidiactl",
            "dri/card0",
            "dri/renderD",
            "mali",
            "vchiq0",
        ];
        let root = Root::new("none", &others.map(|n| (n, 0o660)));
        assert!(root.lines(false, None).is_empty());
        assert!(nodes_of(Path::new("/nowhere"), false, |_| Ok(())).is_empty());
    }

    #[test]
    fn nodes_that_may_not_be_opened_say_what_to_do() {
        let root = Root::new("denied", &[("mali0", 0o660), ("galcore", 0o600)]);
        for served in [false, true] {
            let lines = root.lines(served, Some(ErrorKind::PermissionDenied));
            let [mali, galcore] = &lines[..] else {
                panic!("{lines:?}")
            };
            let start = "/dev/mali0 (ARM Mali) is there, but this user may not open it: ";
            let gid = fs::metadata(&root.path).unwrap().gid();
            match gid {
                0 => assert!(
                    mali.starts_with(start) && mali.contains("mode 660, group the-group; a udev"),
                    "{mali}"
                ),
                _ => assert!(
                    mali.starts_with(start) && mali.contains("sudo usermod -aG the-group USER"),
                    "{mali}"
                ),
            }
            assert!(
                galcore.contains("(Vivante)") && galcore.contains("mode 600, group the-group"),
                "{galcore}"
            );
            assert!(
                galcore.ends_with("KERNEL==\"galcore\", GROUP=\"video\", MODE=\"0660\""),
                "{galcore}"
            );
        }
        let busy = root.lines(true, Some(ErrorKind::ResourceBusy));
        assert!(
            busy[0].starts_with("/dev/mali0 (ARM Mali) is there, but cannot be opened: "),
            "{busy:?}"
        );
    }

    #[test]
    fn nodes_of_a_group_name_it() {
        let root = Root::new("group", &[("dri/renderD128", 0o660), ("kgsl-3d0", 0o666)]);
        // Only root may change the group. For other users the test above covers the case.
        if std::os::unix::fs::chown(root.path.join("dev/dri/renderD128"), None, Some(4711)).is_err()
        {
            return;
        }
        let mut groups = fs::read_to_string(root.path.join("etc/group")).unwrap();
        groups += "render:x:4711:\n";
        fs::write(root.path.join("etc/group"), groups).unwrap();
        let lines = root.lines(true, Some(ErrorKind::PermissionDenied));
        assert_eq!(
            lines[1],
            "/dev/dri/renderD128 is there, but this user may not open it: it belongs to the group \
             render; sudo usermod \
             -aG render USER, then log in again (a systemd service: SupplementaryGroups=render)"
        );
        assert!(
            lines[0].starts_with("/dev/kgsl-3d0 (Qualcomm Adreno) is there"),
            "{lines:?}"
        );
    }

    #[test]
    fn nodes_without_a_library_say_which() {
        let nodes = [
            "mali0",
            "kgsl-3d0",
            "nvidia0",
            "nvidia1",
            "vchiq",
            "pvrsrvkm",
            "dri/renderD128",
            "dri/renderD129",
        ];
        let root = Root::new("open", &nodes.map(|n| (n, 0o666)));
        root.driver("renderD128", "panfrost");
        root.driver("renderD129", "unheard-of");
        assert!(root.lines(true, None).is_empty());
        let lines = root.lines(false, None);
        assert_eq!(lines.len(), nodes.len(), "{lines:?}");
        let has = |start: &str, part: &str| {
            assert!(
                lines
                    .iter()
                    .any(|l| l.starts_with(start) && l.contains(part)),
                "{start} {part}: {lines:?}"
            );
        };
        has(
            "/dev/mali0 (ARM Mali) is there and may be opened",
            "mali-fbdev",
        );
        has("/dev/nvidia1 (NVIDIA) ", "nvidia-opencl-icd");
        has("/dev/vchiq (VideoCore IV) ", "VC4CL");
        has("/dev/dri/renderD128 (ARM Mali) ", "RUSTICL_ENABLE=panfrost");
        has("/dev/dri/renderD129 (unheard-of) ", "mesa-opencl-icd");
    }
}
