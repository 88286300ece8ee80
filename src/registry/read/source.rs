//! Reads kernel sources, removes their comments, and checks the signatures of their functions.

use super::FindSource;
use crate::registry::Kernel;
use crate::registry::mistakes::Mistakes;
use std::borrow::Cow;

/// Reads each source once, in the order of the library, and compares its function's signature with
/// every kernel's entry. The files that sources share come last. Returns paths and texts.
pub(super) fn read(
    name: &str,
    kernels: &[Kernel],
    find: FindSource<'_>,
    mistakes: &mut Mistakes,
) -> Vec<(Cow<'static, str>, Cow<'static, str>)> {
    let mut sources: Vec<(Cow<'static, str>, Cow<'static, str>)> = Vec::new();
    let mut files: Vec<String> = Vec::new();
    for kernel in kernels {
        let Some(path) = &kernel.source else { continue };
        let place = format!("{name}: {}", kernel.codename);
        let at = match sources.iter().position(|(known, _)| known == path) {
            Some(at) => at,
            None => {
                let Some((file, text)) = find(path, &place, mistakes) else {
                    continue;
                };
                files.push(file);
                sources.push((path.to_string().into(), without_comments(&text).into()));
                files.len() - 1
            }
        };
        let (_, text) = &sources[at];
        if let Err(e) = kernel.check_source(text) {
            mistakes.add(&files[at], e);
        }
    }
    for path in common(kernels) {
        if let Some((_, text)) = find(path, &format!("kernels/{path}"), mistakes) {
            sources.push((path.to_string().into(), without_comments(&text).into()));
        }
    }
    sources
}

/// Returns the shared files that are put before kernel sources, each once.
pub(super) fn common(kernels: &[Kernel]) -> Vec<&str> {
    let mut common: Vec<&str> = Vec::new();
    for path in kernels
        .iter()
        .filter(|k| k.source.is_some())
        .flat_map(Kernel::common)
    {
        if !common.contains(&path) {
            common.push(path);
        }
    }
    common
}

/// Removes comments, indentation and unneeded blanks. A third of the text is left. Lines keep their
/// numbers.
fn without_comments(text: &str) -> String {
    let code = |line: &str| without_blanks(line.split("//").next().unwrap_or("").trim());
    text.lines().map(code).collect::<Vec<_>>().join("\n") + "\n"
}

/// Removes blanks that are not needed to separate tokens. Lines with strings and directives stay
/// unchanged, except for the body of a macro.
fn without_blanks(line: &str) -> String {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let define = line
        .strip_prefix("#define ")
        .filter(|rest| !rest.contains(['"', '\'', '#']));
    if let Some((name, body)) =
        define.and_then(|rest| rest.split_at_checked(rest.find(|c| !word(c))?))
    {
        // The blank after the name shows that a macro has no parameters, so it must stay.
        let blank = if body.starts_with('(') { "" } else { " " };
        return format!("#define {name}{blank}{}", without_blanks(body));
    }
    if line.starts_with('#') || line.contains(['"', '\'']) {
        return line.into();
    }
    let operator = |c: char| "+-*/%&|^<>=!~?:".contains(c);
    let mut text = String::with_capacity(line.len());
    let mut blank = false;
    for c in line.chars() {
        if c == ' ' || c == '\t' {
            blank = true;
            continue;
        }
        let last = text.chars().next_back().unwrap_or('(');
        // Without the blank in `0xe + 1`, the compiler would read `e+1` as an exponent.
        let exponent = "eEpP".contains(last) && "+-".contains(c);
        if blank
            && (word(last) && word(c) || operator(last) && operator(c) || exponent || c == '\\')
        {
            text.push(' ');
        }
        blank = false;
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_that_no_token_needs_go() {
        for (line, expected) in [
            (
                "const float4 a = b[i + 1] * -c ;",
                "const float4 a=b[i+1]* -c;",
            ),
            ("x = y - -1; z = a / *p;", "x=y- -1;z=a/ *p;"),
            ("i = 0xe + 3; f = 1.0e + e - 1;", "i=0xe +3;f=1.0e +e -1;"),
            ("return (int) -1 ? p->q : 2 .x;", "return(int)-1?p->q:2 .x;"),
            ("else if (a && !b) \\", "else if(a&& !b) \\"),
            ("#define F (x)  + 1", "#define F (x)+1"),
            ("#define F(a, b) (a) * - b", "#define F(a,b)(a)* -b"),
            ("#define F(a, b) \\", "#define F(a,b) \\"),
            ("#define N  (M - 1) / 2", "#define N (M-1)/2"),
            ("#define F(x) #x \"a  b\"", "#define F(x) #x \"a  b\""),
            ("#define EMPTY", "#define EMPTY"),
            ("#if A  && B", "#if A  && B"),
        ] {
            assert_eq!(without_blanks(line), expected);
        }
        assert_eq!(
            without_comments("a; // b\n  // c\n\td , e;\n"),
            "a;\n\nd,e;\n"
        );
    }
}
