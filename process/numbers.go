package process

// PlainNumbers replaces the objects for floats without a fraction ({"$float": 1}, see docs/api.md)
// with numbers, for expressions and schemas. It changes lists and objects in place.
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
