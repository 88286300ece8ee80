//! Lines, headers, and the mistakes that people make in them.

use super::super::tests::{TestInput, read};
use super::*;
use crate::ir::network::Transform;
use proptest::prelude::*;

#[test]
fn fields() {
    let all = |line: &str| {
        CsvField::all(line.as_bytes())
            .map(|f| f.text().into_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(all("a,b"), ["a", "b"]);
    assert_eq!(all(" a\t, \"b,c\" ,"), ["a", "b,c", ""]);
    assert_eq!(all("\"say \"\"x\"\"\",2"), ["say \"x\"", "2"]);
    assert_eq!(all("\"open,2"), ["\"open", "2"]);
    assert_eq!(all("\"a\"b,2"), ["\"a\"b", "2"]);
    assert_eq!(all("\"\",\""), ["", "\""]);
}

#[test]
fn headers() {
    for header in ["a,b", "\"1st\",mean (mm)", "größe,2nd", "# x,y"] {
        assert!(is_header(header.as_bytes(), &[]), "{header}");
    }
    for record in [
        "1,2", "a,2", "nan,inf", ",", "1.x,2.y", "1;2", "-,+", "\"3\",x", "a\0,b",
    ] {
        assert!(!is_header(record.as_bytes(), &[]), "{record}");
    }
}

/// A line is a header if it has a feature's name, even if its other names look like numbers.
#[test]
fn headers_are_known_by_the_names_of_features() {
    let mut input = TestInput::new(2);
    for (names, swapped) in [
        (
            ["1stFlr", "2ndFlr"],
            "stdin:1:1: expected the feature \"1stFlr\", found \"2ndFlr\"",
        ),
        (
            ["0", "area"],
            "stdin:1:1: expected the feature \"0\", found \"area\"",
        ),
        (
            ["na", "?"],
            "stdin:1:1: expected the feature \"na\", found \"?\"",
        ),
    ] {
        input.features = names.map(Cow::from).to_vec();
        let read = |text: String| read(None, &input, text.as_bytes());
        assert_eq!(
            read(format!("{},{}\n1,2\n", names[0], names[1])),
            Ok(vec![vec![1.0, 2.0]])
        );
        let error = read(format!("{},{}\n1,2\n", names[1], names[0])).unwrap_err();
        assert!(
            error.starts_with(swapped) && error.contains(" in another order: "),
            "{error}"
        );
        assert_eq!(read("1,2\n".into()), Ok(vec![vec![1.0, 2.0]]));
        assert_eq!(
            read("1,x\n".into()).unwrap_err(),
            "stdin:1:2: expected a number, found \"x\""
        );
    }
}

#[test]
fn words() {
    assert_eq!(shown("a\"'\t\u{7f}"), "\"a\\\"'\\t\\u{7f}\"");
    assert_eq!(shown(&"ä".repeat(40)), format!("\"{}…\"", "ä".repeat(32)));
    let n: Vec<String> = [1, 2, 3, 4, 11, 12, 13, 21, 65, 101, 111]
        .map(ordinal)
        .into();
    assert_eq!(
        n,
        [
            "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "65th", "101st", "111th"
        ]
    );
}

/// Returns the records of a text with `width` numbers on each line, or the error message.
fn csv(width: usize, text: &[u8]) -> Result<Vec<Vec<f32>>, String> {
    read(None, &TestInput::new(width), text)
}

fn message(width: usize, text: &str) -> String {
    csv(width, text.as_bytes()).unwrap_err()
}

#[test]
fn what_people_write() {
    let expected = vec![vec![1.0, 2.5], vec![-3.0, 4e-3]];
    for text in [
        "1,2.5\n-3,4e-3\n",
        "1,2.5\n-3,4e-3",
        "1,2.5\r\n-3,4e-3\r\n",
        "1,2.5\r\n-3,4e-3\r",
        "\u{feff}1,2.5\n-3,4e-3",
        "\n  \n\t\r\n1,2.5\n\n-3,4e-3\n\n",
        " 1\t, 2.5 \n\t-3 ,4e-3\t\n",
        "\"1\",\"2.5\"\n\" -3 \" , \"4e-3\"\n",
        "+1,+2.5\n-3.000,+.004\n",
        "a,b\n1,2.5\n-3,4e-3\n",
        "\u{feff}\n\"a, \"\"quoted\"\"\",b\r\n1,2.5\n-3,4e-3\n",
    ] {
        assert_eq!(csv(2, text.as_bytes()).as_ref(), Ok(&expected), "{text:?}");
    }
    for empty in ["", "\n", " \r\n\n", "a,b\n", "\u{feff}"] {
        assert_eq!(csv(2, empty.as_bytes()), Ok(vec![]), "{empty:?}");
    }
    let zero = csv(1, b"-0\n").unwrap();
    assert!(zero[0][0].is_sign_negative());
}

#[test]
fn what_people_get_wrong() {
    // Each case has the count of numbers of a line, the text with `/` for line ends, the place, and
    // the message.
    let cases = r#"
2 | 1,2/3,1.x/    | 2:2 | expected a number, found "1.x"
2 | 1,2//3,/      | 3:2 | expected a number, found ""
2 | 1,2/3         | 2:2 | expected 2 numbers, the line has 1
1 | 1/3,4         | 2:2 | expected 1 number, found a 2nd: "4"
2 | 1,2,/         | 1:3 | expected 2 numbers, found a 3rd: ""
2 | 1,2/1,nan/    | 2:2 | expected a finite number, found "nan"
2 | nan,nan/      | 1:1 | expected a finite number, found "nan"
2 | 1," -inf"/    | 1:2 | expected a finite number, found " -inf"
2 | 1,1e39/       | 1:2 | expected a number that fits f32, found "1e39"
2 | 1,2/a,b/      | 2:1 | expected a number, found "a"
2 | 1.x,2.x/      | 1:1 | expected a number, found "1.x"
2 | 1,0x10/       | 1:2 | expected a number, found "0x10"
2 | 1,2 3/        | 1:2 | expected a number, found "2 3"
2 | 1,"2/         | 1:2 | expected a number, found "\"2"
3 | a,b/          | 1:3 | expected 3 names, the header has 2
1 | a,b/          | 1:2 | expected 1 name, the header has a 2nd: "b""#;
    for case in cases.lines().skip(1) {
        let parts: Vec<&str> = case.split('|').map(str::trim).collect();
        let text = parts[1].replace('/', "\n");
        let expected = format!("stdin:{}: {}", parts[2], parts[3]);
        assert_eq!(
            message(parts[0].parse().unwrap(), &text),
            expected,
            "{case}"
        );
    }
    let long = format!("1,{}\n", "x".repeat(50));
    assert_eq!(
        message(2, &long),
        format!(
            "stdin:1:2: expected a number, found \"{}…\"",
            "x".repeat(32)
        )
    );
}

#[test]
fn other_separators_are_named() {
    let semicolons = "expected commas between the numbers)";
    assert!(message(3, "1;2;3\n").contains("found \"1;2;3\" (the line has semicolons"));
    assert!(message(3, "1;2;3\n").ends_with(semicolons));
    assert!(message(3, "a;b;c\n1;2;3\n").ends_with(semicolons));
    assert!(message(2, "1,5;2,5\n").ends_with("before their decimals)"));
    assert!(message(3, "1\t2\t3\n").contains("(the line has tabs"));
    assert!(message(3, "1 2 3\n").contains("(the line has blanks"));
    assert!(message(3, "a b c\n").contains("(the line has blanks"));
}

#[test]
fn other_files_are_recognised() {
    assert!(
        message(2, "1,2\n\0\u{1},2\n")
            .ends_with("(this looks like binary data: -f u8 or -f f32 reads raw records)")
    );
    assert!(csv(2, b"\0\0\0\0\0").unwrap_err().contains("binary data"));
    let gzip = csv(2, b"\x1f\x8b\x08\0").unwrap_err();
    assert_eq!(
        gzip,
        "stdin: this looks like gzip: gunzip -c FILE | mortonnet"
    );
    assert!(csv(2, b"\xff\xfe1\0").unwrap_err().contains("UTF-16"));
    assert!(csv(2, b"PK\x03\x04").unwrap_err().contains("npz"));
    assert!(
        csv(2, b"1,2\xff\n")
            .unwrap_err()
            .contains("found \"2\u{fffd}\"")
    );
}

#[test]
fn names_that_stand_elsewhere_are_said() {
    let mut input = TestInput::new(3);
    input.features = ["a", "b", "c"].map(Cow::from).to_vec();
    let error = |text: &str| read(None, &input, text.as_bytes()).unwrap_err();
    assert_eq!(
        error("c,b,a\n"),
        "stdin:1:1: expected the feature \"a\", found \"c\" (the header has all features, but in \
         another order: put the columns in the order that --info shows)"
    );
    assert_eq!(
        error(",a,b,c\n0,1,2,3\n"),
        "stdin:1:1: expected the feature \"a\", found \"\" (one more column stands before the \
         features, perhaps an \
         index: --key 1 puts it in front of the answers)"
    );
    let more = " (2 more columns stand before the features: --key 2 puts them in front of the \
        answers)";
    assert!(error("t,id,a,b,c\n").ends_with(more));
    assert!(error("a,b,d\n").ends_with("found \"d\""));
    assert!(error(",a,b,d\n").ends_with("found \"\""));
}

#[test]
fn the_header_must_have_the_names_of_the_features() {
    let mut input = TestInput::new(3);
    input.features = ["a", "say \"b\", c", "größe"].map(Cow::from).to_vec();
    let read = |text: &str| read(None, &input, text.as_bytes());
    let one = Ok(vec![vec![1.0, 2.0, 3.0]]);
    assert_eq!(read("a,\"say \"\"b\"\", c\", größe\n1,2,3\n"), one);
    assert_eq!(read("1,2,3\n"), one);
    let error = |text: &str| read(text).unwrap_err();
    assert_eq!(
        error("a,c,b\n"),
        "stdin:1:2: expected the feature \"say \\\"b\\\", c\", found \"c\""
    );
    assert_eq!(
        error("\nx\n"),
        "stdin:2:1: expected the feature \"a\", found \"x\""
    );
    assert_eq!(
        error("a\n"),
        "stdin:1:2: expected 3 names, the header has 1"
    );
    input.features = ["a", "b"].map(Cow::from).to_vec();
    input.width = 2;
    assert_eq!(
        super::super::tests::read(None, &input, b"a,b,c\n").unwrap_err(),
        "stdin:1:3: expected 2 names, the header has a 3rd: \"c\""
    );
}

#[test]
fn the_transform_is_applied_before_rounding() {
    let mut input = TestInput::new(2);
    input.transform = Transform::MeanStd {
        mean: vec![101_325.0].into(),
        std: vec![300.0, 0.5].into(),
    };
    let expected = [((101_325.123_f64 - 101_325.0) / 300.0) as f32, 2e-5f32];
    let found = read(None, &input, b"101325.123,101325.00001\n").unwrap();
    assert_eq!(found[0][0].to_bits(), expected[0].to_bits());
    assert!((found[0][1] - expected[1]).abs() < 1e-9);
    let message = read(None, &input, b"1,1e300\n").unwrap_err();
    assert!(
        message.starts_with("stdin:1:2: expected a number that fits f32 after the input scaling"),
        "{message}"
    );
    input.transform = Transform::ScaleOffset {
        scale: vec![2.0].into(),
        offset: vec![1.0, -1.0].into(),
    };
    assert_eq!(read(None, &input, b"1,2\n"), Ok(vec![vec![3.0, 3.0]]));
}

#[test]
fn a_line_may_fill_the_buffer_and_no_more() {
    let capacity = 1 << 20;
    let mut text = b"1,".to_vec();
    text.resize(capacity - 2, b' ');
    text.extend(b"2\n");
    assert_eq!(text.len(), capacity);
    let twice = [text.clone(), text.clone()].concat();
    assert_eq!(csv(2, &twice), Ok(vec![vec![1.0, 2.0]; 2]));
    text.insert(1, b' ');
    text.insert(0, b'\n');
    let expected = "stdin:2: expected a line of at most 1048575 bytes, found a longer one";
    assert_eq!(csv(2, &text).unwrap_err(), expected);
}

proptest! {
    #[test]
    fn numbers_have_the_bits_of_the_standard_library(
        bits in proptest::collection::vec(any::<u32>(), 1..20),
    ) {
        let numbers = bits.into_iter().map(f32::from_bits);
        let numbers: Vec<f32> = numbers.filter(|x| x.is_finite()).collect();
        prop_assume!(!numbers.is_empty());
        let text: Vec<String> = numbers.iter().map(|x| format!("{x:?}")).collect();
        let found = csv(numbers.len(), text.join(" ,").as_bytes()).unwrap();
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(&found[0]), bits(&numbers));
    }

    #[test]
    fn no_bytes_panic(
        bytes in proptest::collection::vec(
            prop_oneof![7 => proptest::sample::select(&b",\n\"1- a"[..]), 1 => any::<u8>()],
            0..60,
        ),
        width in 1usize..4,
    ) {
        let _ = csv(width, &bytes);
    }
}
