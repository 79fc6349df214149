package process

// PlainNumbers returns a value of JSON with numbers in place of the objects that stand for floats without a fraction
// ({"$float": 1}, see docs/api.md), as expressions and schemas see it. It changes lists and objects in place.
func PlainNumbers(v any) any {
	switch v := v.(type) {
	case []any:
		for n := range v {
			v[n] = PlainNumbers(v[n])
		}
	case map[string]any:
		if len(v) == 1 {
			switch float := v["$float"].(type) {
			case float64:
				return float
			case string:
				if float == "-0" {
					return 0.0
				}
			}
		}
		for name := range v {
			v[name] = PlainNumbers(v[name])
		}
	}
	return v
}
